package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Class says what an error of the Kafka side means for the record that met it.
type Class int

const (
	// Transient errors pass: connections, elections, missing replicas, a producer the broker forgot.
	Transient Class = iota
	// PermanentRecord errors can never be cured by sending the same record again. kgo gives every record behind a
	// failed one the same error, so this is a verdict only on a record that was sent alone.
	PermanentRecord
	// Hold errors need a person (a topic, a right, a setting). The record waits and is tried again; it is never a
	// dead letter. What is not known is Hold.
	Hold
	// Auth errors are a refused login or certificate. They hold as well, but not for ever: see authPatience.
	Auth
)

func (c Class) String() string {
	switch c {
	case Transient:
		return "transient"
	case PermanentRecord:
		return "permanent for the record"
	case Hold:
		return "hold"
	case Auth:
		return "authentication"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// Error is a failure of the Kafka side that ends a call. Error() is one line; Hint says what to type or change next.
type Error struct {
	Op     string // what was being done: "publish", "check dead letter topic"
	Object string // the topic, the brokers; "" when there is none
	Class  Class
	Hint   string
	Err    error
}

func (e *Error) Error() string {
	if e.Object == "" {
		return fmt.Sprintf("kafka: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("kafka: %s %s: %v", e.Op, e.Object, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// secretError is a password that could not be read. It carries the reader's error, never the secret.
type secretError struct{ err error }

func (e *secretError) Error() string { return "read the sasl password: " + e.err.Error() }
func (e *secretError) Unwrap() error { return e.err }

// byCode decides for the codes a broker answers with. A retriable code that is not here is Transient, any other Hold.
var byCode = map[*kerr.Error]Class{
	kerr.MessageTooLarge:    PermanentRecord,
	kerr.RecordListTooLarge: PermanentRecord,
	kerr.InvalidRecord:      PermanentRecord,
	kerr.InvalidTimestamp:   PermanentRecord,
	kerr.CorruptMessage:     PermanentRecord, // retriable for Kafka: a flipped bit on the way; see corruptTries

	// The broker and the producer disagree about what was written. A new epoch, or a new producer, cures it.
	kerr.OutOfOrderSequenceNumber: Transient,
	kerr.UnknownProducerID:        Transient,
	kerr.InvalidProducerEpoch:     Transient,
	kerr.InvalidProducerIDMapping: Transient,
	kerr.DuplicateSequenceNumber:  Transient,
	kerr.ConcurrentTransactions:   Transient,

	kerr.UnknownTopicOrPartition: Hold, // retriable for Kafka: it may only be new. We waited for that already
	kerr.UnknownTopicID:          Hold,

	kerr.SaslAuthenticationFailed:     Auth,
	kerr.UnsupportedSaslMechanism:     Auth,
	kerr.IllegalSaslState:             Auth,
	kerr.DelegationTokenAuthDisabled:  Auth,
	kerr.DelegationTokenNotFound:      Auth,
	kerr.DelegationTokenExpired:       Auth,
	kerr.DelegationTokenOwnerMismatch: Auth,
}

// Classify is the one place that decides what an error of the Kafka side means. nil is Transient.
func Classify(err error) Class {
	var (
		own       *Error
		code      *kerr.Error
		secret    *secretError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		host      x509.HostnameError
		verify    *tls.CertificateVerificationError
		alert     *net.OpError
	)
	switch {
	case err == nil:
		return Transient
	case errors.As(err, &own):
		return own.Class
	case errors.Is(err, kgo.ErrMaxBuffered):
		return Hold // a bug of ours; publishing ends with it before anybody asks
	case errors.As(err, &code):
		if c, ok := byCode[code]; ok {
			return c
		}
		if code.Retriable {
			return Transient
		}
		return Hold
	case errors.As(err, &secret),
		errors.As(err, &authority), errors.As(err, &invalid), errors.As(err, &host), errors.As(err, &verify),
		errors.As(err, &alert) && alert.Op == "remote error": // a TLS alert: our certificate was refused
		return Auth
	}
	// What is left comes from the network or from the client itself (aborted, closed, retries used up). A produced
	// record's fate is then unknown or it was never sent: both mean again.
	return Transient
}

// answered is true when a broker said so, and false when none could be asked.
func answered(err error) bool {
	var code *kerr.Error
	return errors.As(err, &code)
}

// refusal gives the reason of the dead letter for a record that failed alone with err.
func refusal(err error) (Reason, bool) {
	if Classify(err) != PermanentRecord {
		return "", false
	}
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
		return ReasonTooLarge, true
	}
	return ReasonRefused, true
}

// kindOf names an error for the retries metric: the broker's code in lower case, or one of a few words.
func kindOf(err error) string {
	var code *kerr.Error
	switch {
	case errors.As(err, &code):
		return strings.ToLower(code.Message)
	case errors.Is(err, kgo.ErrRecordRetries):
		return "retries"
	case errors.Is(err, kgo.ErrAborting), errors.Is(err, kgo.ErrClientClosed):
		return "aborted"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case Classify(err) == Auth:
		return "authentication"
	}
	return "connection"
}

// oneLine is err's text for a readiness body or a log line.
func oneLine(err error) string {
	var code *kerr.Error
	text := err.Error()
	if errors.As(err, &code) && text == code.Error() {
		text = code.Message // the long description says nothing that our hint does not
	}
	return strings.Join(strings.Fields(text), " ")
}

// script is the beginning of a command with one of Kafka's own scripts, as it reaches these brokers.
func (cfg KafkaConfig) script(name string) string {
	s := name + " --bootstrap-server " + strings.Join(cfg.Brokers, ",")
	if cfg.TLS != nil || cfg.SASL.Mechanism != "" {
		s += " --command-config client.properties"
	}
	return s
}

// cause explains in one line why records of topic wait, naming the object and what to type.
func (cfg KafkaConfig) cause(topic string, err error) string {
	if h := cfg.hint(topic, err); h != "" {
		return oneLine(err) + ": " + h
	}
	return oneLine(err) + ": tailer keeps trying"
}

// hint says what cures err, or is "".
func (cfg KafkaConfig) hint(topic string, err error) string {
	user := cfg.SASL.Username
	principal := "User:" + user
	if user == "" {
		principal = "User:<name>"
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Sprintf("topic %q does not exist: create it (%s --create --topic %s) or set kafka.topics.create: true", topic, cfg.script("kafka-topics.sh"), topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		operations := "--operation Write --operation Describe"
		if cfg.Topics.Create {
			operations += " --operation Create"
		}
		return fmt.Sprintf("not allowed on topic %q: %s --add --allow-principal %s %s --topic %s", topic, cfg.script("kafka-acls.sh"), principal, operations, topic)
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Sprintf("not allowed on the cluster (topic %q waits): %s --add --allow-principal %s --operation IdempotentWrite --cluster", topic, cfg.script("kafka-acls.sh"), principal)
	case errors.Is(err, kerr.NotEnoughReplicas), errors.Is(err, kerr.NotEnoughReplicasAfterAppend):
		return fmt.Sprintf("topic %q has fewer replicas in sync than its min.insync.replicas: bring its brokers back (%s --describe --topic %s)", topic, cfg.script("kafka-topics.sh"), topic)
	case errors.Is(err, kerr.InvalidTopicException):
		return fmt.Sprintf("the broker takes no topic named %q: change routing.topic", topic)
	case errors.Is(err, kerr.PolicyViolation):
		return fmt.Sprintf("a policy of the cluster forbids topic %q as asked: change kafka.topics or create it by hand", topic)
	case errors.Is(err, kerr.InvalidReplicationFactor):
		return fmt.Sprintf("topic %q cannot be created: set kafka.topics.replication_factor to at most the number of brokers", topic)
	case errors.Is(err, kerr.InvalidPartitions):
		return fmt.Sprintf("topic %q cannot be created: set kafka.topics.partitions", topic)
	case errors.Is(err, kerr.InvalidConfig):
		return fmt.Sprintf("topic %q cannot be created: the broker refuses a setting of kafka.topics.config", topic)
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return "the broker does not offer this mechanism: change kafka.sasl.mechanism"
	case errors.Is(err, kerr.UnknownServerError):
		return fmt.Sprintf("the leader of topic %q failed without saying why: read the broker's log", topic)
	case Classify(err) == Auth:
		var secret *secretError
		if errors.As(err, &secret) {
			return "check kafka.sasl.password_file"
		}
		if user != "" && errors.Is(err, kerr.SaslAuthenticationFailed) {
			return fmt.Sprintf("the broker refused user %q: check kafka.sasl.username, password_file and mechanism", user)
		}
		return "check kafka.tls and kafka.sasl"
	}
	return ""
}
