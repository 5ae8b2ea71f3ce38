package postgres

import "crypto/tls"

// ServerCertificate is the server's own: a broker of the same test may show it
// to clients that trust the same authority.
func (t *TLS) ServerCertificate() (tls.Certificate, error) {
	return tls.LoadX509KeyPair(t.serverCert, t.serverKey)
}
