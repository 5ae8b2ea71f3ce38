package postgres

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// TLS names the files of a server that offers TLS. The server's certificate is
// for 127.0.0.1 and localhost; the client's says postgres, which "cert" in
// pg_hba.conf takes for the role.
type TLS struct {
	CA, ClientCert, ClientKey string
	OtherCA                   string // an authority that signed neither: what a client must not trust
	serverCert, serverKey     string
}

// writeTLS makes an authority and the certificates it signed.
func (s *Server) writeTLS() (*TLS, error) {
	file := func(name string) string { return filepath.Join(s.dir, name) }
	t := &TLS{
		CA: file("ca.crt"), ClientCert: file("client.crt"), ClientKey: file("client.key"), OtherCA: file("other-ca.crt"),
		serverCert: file("server.crt"), serverKey: file("server.key"),
	}
	ca, err := issue(nil, "tailer e2e authority", t.CA, file("ca.key"))
	if err != nil {
		return nil, err
	}
	if _, err := issue(nil, "somebody else", t.OtherCA, file("other-ca.key")); err != nil {
		return nil, err
	}
	if _, err := issue(ca, "postgres", t.ClientCert, t.ClientKey); err != nil {
		return nil, err
	}
	if _, err := issue(ca, "localhost", t.serverCert, t.serverKey); err != nil {
		return nil, err
	}
	return t, s.chown(t.serverKey) // Postgres reads it only when it is its own
}

type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a key and a certificate signed by ca, or an authority without one.
func issue(ca *issuer, name, certFile, keyFile string) (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(7 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if ca == nil {
		cert.IsCA, cert.BasicConstraintsValid = true, true
		cert.KeyUsage |= x509.KeyUsageCertSign
		ca = &issuer{cert, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, err
	}
	if err := os.Chmod(certFile, 0o644); err != nil { // whatever our file mode mask: Postgres reads it, too
		return nil, err
	}
	return &issuer{cert, key}, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600)
}
