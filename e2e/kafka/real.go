package kafka

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/tailer-relay/tailer/e2e/host"
)

// RealOptions describe a real cluster. The zero value is one small broker.
type RealOptions struct {
	Brokers  int               // 1 or 3; each is its own controller, too
	Settings map[string]string // server.properties, over the defaults of this package
	Fast     bool              // a larger heap and the optimising compiler: for benchmarks
	// Front gives each broker a second listener, behind what it makes for a
	// broker and the listener's address: it returns the address that clients
	// are told who come through it. FrontAddrs has them. nil: none.
	Front func(broker int, target string) (advertised string)
}

// Real is a cluster of Apache Kafka in KRaft mode.
type Real struct {
	run     *host.Run
	brokers []*Broker
}

// Broker is one process of a cluster, running or not.
type Broker struct {
	id          int
	dir         string
	libs        string
	java        []string // options of the virtual machine
	run         *host.Run
	port, voter *host.Port
	front       *host.Port // nil: no second listener
	advertised  string     // what clients of the second one are told

	mu   sync.Mutex
	cmd  *exec.Cmd     // nil when it does not run
	done chan struct{} // closed when cmd has ended
}

// startLimit bounds a start. Three brokers take 11 s on two idle cores.
const startLimit = 2 * time.Minute

// NewReal starts a cluster of small brokers for a test, which shows their logs
// if it fails.
func NewReal(t testing.TB, brokers int) *Real {
	t.Helper()
	r, err := StartReal(t.Context(), RealOptions{Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, b := range r.brokers {
				t.Logf("the end of the log of broker %d:\n%s", b.id, b.LogTail(30))
			}
		}
		if err := r.Close(); err != nil {
			t.Errorf("remove kafka: %v", err)
		}
	})
	return r
}

// StartReal starts a cluster that Close ends; it returns when every broker
// lists all of them.
func StartReal(ctx context.Context, opt RealOptions) (r *Real, err error) {
	libs, err := libraries(ctx)
	if err != nil {
		return nil, fmt.Errorf("start kafka: %w", err)
	}
	r = &Real{}
	defer func() {
		if err != nil {
			err = fmt.Errorf("start kafka: %w", errors.Join(err, r.Close()))
			r = nil
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if r.run, err = host.NewRun("kafka"); err != nil {
		return
	}
	java := []string{"-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
	if opt.Fast {
		java = []string{"-Xms1g", "-Xmx1g", "-XX:+UseG1GC"}
	}
	var voters []string
	for id := 1; id <= max(1, opt.Brokers); id++ {
		b := &Broker{id: id, dir: filepath.Join(r.run.Dir, fmt.Sprint(id)), libs: libs, java: java, run: r.run}
		r.brokers = append(r.brokers, b)
		if err = os.Mkdir(b.dir, 0o755); err != nil {
			return
		}
		if b.port, err = host.NewPort(); err != nil {
			return
		}
		if b.voter, err = host.NewPort(); err != nil {
			return
		}
		if opt.Front != nil {
			if b.front, err = host.NewPort(); err != nil {
				return
			}
			b.advertised = opt.Front(id, fmt.Sprintf("127.0.0.1:%d", b.front.Number))
		}
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", id, b.voter.Number))
	}
	var uuid [16]byte
	rand.Read(uuid[:])
	cluster := base64.RawURLEncoding.EncodeToString(uuid[:])
	if cluster[0] == '-' { // it would be read as an option
		cluster = "A" + cluster[1:]
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, b := range r.brokers {
		group.Go(func() error {
			if err := b.configure(strings.Join(voters, ","), len(r.brokers), opt.Settings); err != nil {
				return err
			}
			out, err := b.command(groupCtx, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", b.properties()).CombinedOutput()
			if err != nil {
				return fmt.Errorf("format broker %d: %w\n%s", b.id, err, out)
			}
			return b.launch()
		})
	}
	if err = group.Wait(); err != nil {
		return
	}
	err = r.brokers[0].wait(ctx, len(r.brokers))
	return
}

// Addrs are the addresses of all brokers, running or not.
func (r *Real) Addrs() []string {
	addrs := make([]string, len(r.brokers))
	for i, b := range r.brokers {
		addrs[i] = b.Addr()
	}
	return addrs
}

// FrontAddrs are the addresses of the brokers' second listeners.
func (r *Real) FrontAddrs() []string {
	addrs := make([]string, len(r.brokers))
	for i, b := range r.brokers {
		addrs[i] = b.advertised
	}
	return addrs
}

// Broker returns a broker by its node id, from 1.
func (r *Real) Broker(id int) *Broker { return r.brokers[id-1] }

// Close kills what runs and removes everything.
func (r *Real) Close() error {
	var errs []error
	for _, b := range r.brokers {
		errs = append(errs, b.Kill())
		for _, p := range []*host.Port{b.port, b.voter, b.front} {
			if p != nil {
				p.Release()
			}
		}
	}
	if r.run != nil {
		errs = append(errs, r.run.Close())
	}
	return errors.Join(errs...)
}

// Addr is where clients reach the broker; the same after a restart.
func (b *Broker) Addr() string { return fmt.Sprintf("127.0.0.1:%d", b.port.Number) }

func (b *Broker) properties() string { return filepath.Join(b.dir, "server.properties") }

func (b *Broker) configure(voters string, brokers int, over map[string]string) error {
	replicas, minimum := "1", "1"
	if brokers > 1 {
		replicas, minimum = "3", "2"
	}
	settings := map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          fmt.Sprint(b.id),
		"controller.quorum.voters":                         voters,
		"controller.listener.names":                        "CONTROLLER",
		"inter.broker.listener.name":                       "PLAINTEXT",
		"listeners":                                        fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", b.Addr(), b.voter.Number),
		"log.dirs":                                         filepath.Join(b.dir, "log"),
		"auto.create.topics.enable":                        "false",
		"num.partitions":                                   "3",
		"default.replication.factor":                       replicas,
		"min.insync.replicas":                              minimum,
		"group.initial.rebalance.delay.ms":                 "0",
		"offsets.topic.num.partitions":                     "3",
		"offsets.topic.replication.factor":                 replicas,
		"transaction.state.log.num.partitions":             "3",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    minimum,
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            minimum,
		"controlled.shutdown.enable":                       "true",
	}
	if b.front != nil {
		settings["listeners"] += fmt.Sprintf(",FRONT://127.0.0.1:%d", b.front.Number)
		settings["advertised.listeners"] = fmt.Sprintf("PLAINTEXT://%s,FRONT://%s", b.Addr(), b.advertised)
		settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FRONT:PLAINTEXT"
	}
	maps.Copy(settings, over)
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s=%s\n", key, settings[key])
	}
	return os.WriteFile(b.properties(), []byte(text.String()), 0o644)
}

// command runs one of Kafka's classes.
func (b *Broker) command(ctx context.Context, class string, args ...string) *exec.Cmd {
	java := append(slices.Clone(b.java), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(b.libs, "*"), class) // Java itself expands the star
	cmd := exec.CommandContext(ctx, "java", append(java, args...)...)
	cmd.Dir = b.dir
	return cmd
}

// launch starts the process without waiting for it to serve.
func (b *Broker) launch() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil {
		return fmt.Errorf("broker %d already runs", b.id)
	}
	log, err := os.OpenFile(b.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := b.command(context.Background(), "kafka.Kafka", b.properties())
	cmd.Stdout, cmd.Stderr = log, log
	if err := b.run.Start(cmd, syscall.SIGKILL); err != nil {
		return fmt.Errorf("start broker %d: %w", b.id, err)
	}
	done := make(chan struct{})
	go func() {
		cmd.Wait() // the log says more than the exit code
		close(done)
	}()
	b.cmd, b.done = cmd, done
	return nil
}

// wait returns when this broker answers and lists so many brokers, itself
// among them: an open port says nothing.
func (b *Broker) wait(ctx context.Context, brokers int) error {
	b.mu.Lock()
	done := b.done
	b.mu.Unlock()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.DialTimeout(time.Second), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		// Not through kadm, which would answer from its cache for minutes.
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{} // none; nil would be all
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		resp, err := client.SeedBrokers()[0].Request(try, req)
		cancel()
		var listed []int32
		if err == nil {
			for _, other := range resp.(*kmsg.MetadataResponse).Brokers {
				listed = append(listed, other.NodeID)
			}
		}
		if slices.Contains(listed, int32(b.id)) && len(listed) >= brokers {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("broker %d ended:\n%s", b.id, b.LogTail(30))
		case <-ctx.Done():
			return fmt.Errorf("wait for broker %d (it lists %v, not %d brokers; %v): %w\n%s", b.id, listed, brokers, err, ctx.Err(), b.LogTail(30))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Launch starts a stopped broker and does not wait for it.
func (b *Broker) Launch() error { return b.launch() }

// Start starts a stopped broker and waits until it serves.
func (b *Broker) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := b.launch(); err != nil {
		return err
	}
	return b.wait(ctx, 1)
}

// Stop shuts the broker down in order, handing its partitions over.
func (b *Broker) Stop() error { return b.end(syscall.SIGTERM) }

// Kill ends it by SIGKILL.
func (b *Broker) Kill() error { return b.end(syscall.SIGKILL) }

// Pause freezes the process: connections stay, nothing answers.
func (b *Broker) Pause() error { return b.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (b *Broker) Resume() error { return b.signal(syscall.SIGCONT) }

func (b *Broker) signal(sig syscall.Signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return fmt.Errorf("broker %d does not run", b.id)
	}
	return b.cmd.Process.Signal(sig)
}

func (b *Broker) end(sig syscall.Signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return nil
	}
	b.cmd.Process.Signal(sig) // an error means that it has ended
	select {
	case <-b.done:
	case <-time.After(30 * time.Second):
		// The last broker of a quorum cannot hand over and waits for ever.
		b.cmd.Process.Kill()
		<-b.done
	}
	b.cmd = nil
	return nil
}

func (b *Broker) logFile() string { return filepath.Join(b.dir, "broker.log") }

// LogTail is the end of the broker's log.
func (b *Broker) LogTail(lines int) string {
	text, err := os.ReadFile(b.logFile())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
