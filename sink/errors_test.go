package sink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		err    error
		class  Class
		reason Reason // of the dead letter, "" for never
		kind   string
	}{
		{kerr.MessageTooLarge, PermanentRecord, ReasonTooLarge, "message_too_large"},
		{fmt.Errorf("%w (uncompressed_bytes=9)", kerr.MessageTooLarge), PermanentRecord, ReasonTooLarge, "message_too_large"},
		{kerr.RecordListTooLarge, PermanentRecord, ReasonTooLarge, "record_list_too_large"},
		{kerr.InvalidRecord, PermanentRecord, ReasonRefused, "invalid_record"},
		{kerr.InvalidTimestamp, PermanentRecord, ReasonRefused, "invalid_timestamp"},
		{kerr.CorruptMessage, PermanentRecord, ReasonRefused, "corrupt_message"},

		{kerr.TopicAuthorizationFailed, Hold, "", "topic_authorization_failed"},
		{kerr.ClusterAuthorizationFailed, Hold, "", "cluster_authorization_failed"},
		{kerr.UnknownTopicOrPartition, Hold, "", "unknown_topic_or_partition"},
		{kerr.UnknownTopicID, Hold, "", "unknown_topic_id"},
		{kerr.InvalidTopicException, Hold, "", "invalid_topic_exception"},
		{kerr.UnknownServerError, Hold, "", "unknown_server_error"},
		{kerr.PolicyViolation, Hold, "", "policy_violation"},
		{kerr.InvalidRequiredAcks, Hold, "", "invalid_required_acks"},
		{kerr.UnsupportedCompressionType, Hold, "", "unsupported_compression_type"},
		{kerr.UnsupportedForMessageFormat, Hold, "", "unsupported_for_message_format"},
		{kerr.InvalidTxnState, Hold, "", "invalid_txn_state"},
		{&kerr.Error{Message: "INVENTED_LATER", Code: 999}, Hold, "", "invented_later"},
		{kgo.ErrMaxBuffered, Hold, "", "connection"},

		{nil, Transient, "", ""},
		{kerr.NotEnoughReplicas, Transient, "", "not_enough_replicas"},
		{kerr.NotEnoughReplicasAfterAppend, Transient, "", "not_enough_replicas_after_append"},
		{kerr.LeaderNotAvailable, Transient, "", "leader_not_available"},
		{kerr.NotLeaderForPartition, Transient, "", "not_leader_for_partition"},
		{kerr.RequestTimedOut, Transient, "", "request_timed_out"},
		{kerr.KafkaStorageError, Transient, "", "kafka_storage_error"},
		{kerr.OutOfOrderSequenceNumber, Transient, "", "out_of_order_sequence_number"},
		{kerr.UnknownProducerID, Transient, "", "unknown_producer_id"},
		{kerr.InvalidProducerEpoch, Transient, "", "invalid_producer_epoch"},
		{kerr.ThrottlingQuotaExceeded, Transient, "", "throttling_quota_exceeded"},
		{kgo.ErrRecordRetries, Transient, "", "retries"},
		{kgo.ErrAborting, Transient, "", "aborted"},
		{kgo.ErrClientClosed, Transient, "", "aborted"},
		{context.DeadlineExceeded, Transient, "", "timeout"},
		{io.EOF, Transient, "", "connection"},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, Transient, "", "connection"},
		{errors.New("something"), Transient, "", "connection"},

		{kerr.SaslAuthenticationFailed, Auth, "", "sasl_authentication_failed"},
		{kerr.UnsupportedSaslMechanism, Auth, "", "unsupported_sasl_mechanism"},
		{kerr.IllegalSaslState, Auth, "", "illegal_sasl_state"},
		{&secretError{os.ErrNotExist}, Auth, "", "authentication"},
		{fmt.Errorf("connect: %w", x509.UnknownAuthorityError{}), Auth, "", "authentication"},
		{&tls.CertificateVerificationError{Err: errors.New("x")}, Auth, "", "authentication"},
		{x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, Auth, "", "authentication"},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, Auth, "", "authentication"},

		{&Error{Op: "x", Class: Auth, Err: io.EOF}, Auth, "", "authentication"},
	} {
		if got := Classify(tt.err); got != tt.class {
			t.Errorf("%v is %v, want %v", tt.err, got, tt.class)
		}
		if tt.err == nil {
			continue
		}
		if reason, ok := refusal(tt.err); reason != tt.reason || ok != (tt.reason != "") {
			t.Errorf("%v makes a dead letter %q (%v), want %q", tt.err, reason, ok, tt.reason)
		}
		if got := kindOf(tt.err); got != tt.kind {
			t.Errorf("%v is of kind %q, want %q", tt.err, got, tt.kind)
		}
	}
}

// Every code that Kafka has a name for must be decided, and none but the five may make a dead letter.
func TestClassifyEveryCode(t *testing.T) {
	refusable := 0
	for code := int16(-1); code < 300; code++ {
		err := kerr.ErrorForCode(code)
		if code != 0 && Classify(err) == PermanentRecord {
			refusable++
		}
	}
	if refusable != 5 {
		t.Errorf("%d codes can refuse a record, want 5", refusable)
	}
}

func TestCauseIsOneLineWithWhatToType(t *testing.T) {
	plain := KafkaConfig{Brokers: []string{"a:1", "b:2"}, SASL: SASLConfig{Username: "relay"}}
	secure := plain
	secure.SASL.Mechanism, secure.Topics.Create = "PLAIN", true
	for _, tt := range []struct {
		cfg  KafkaConfig
		err  error
		want string
	}{
		{plain, kerr.UnknownTopicOrPartition, `UNKNOWN_TOPIC_OR_PARTITION: topic "shop" does not exist: create it (kafka-topics.sh --bootstrap-server a:1,b:2 --create --topic shop) or set kafka.topics.create: true`},
		{plain, kerr.TopicAuthorizationFailed, `TOPIC_AUTHORIZATION_FAILED: not allowed on topic "shop": kafka-acls.sh --bootstrap-server a:1,b:2 --add --allow-principal User:relay --operation Write --operation Describe --topic shop`},
		{secure, kerr.TopicAuthorizationFailed, `TOPIC_AUTHORIZATION_FAILED: not allowed on topic "shop": kafka-acls.sh --bootstrap-server a:1,b:2 --command-config client.properties --add --allow-principal User:relay --operation Write --operation Describe --operation Create --topic shop`},
		{plain, kerr.ClusterAuthorizationFailed, `CLUSTER_AUTHORIZATION_FAILED: not allowed on the cluster (topic "shop" waits): kafka-acls.sh --bootstrap-server a:1,b:2 --add --allow-principal User:relay --operation IdempotentWrite --cluster`},
		{plain, errors.New("two\nlines"), "two lines: tailer keeps trying"},
	} {
		if got := tt.cfg.cause("shop", tt.err); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	e := &Error{Op: "check dead letter topic", Object: "x.dlq", Hint: "type this", Err: kerr.UnknownTopicOrPartition}
	wrapped := fmt.Errorf("start: %w", e)
	if !errors.Is(wrapped, kerr.UnknownTopicOrPartition) || !strings.HasPrefix(e.Error(), "kafka: check dead letter topic x.dlq: ") {
		t.Error(wrapped)
	}
}

// hintOf is the hint of the first *Error in err's chain, or "".
func hintOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Hint
	}
	return ""
}
