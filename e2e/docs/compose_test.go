package docs_test

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tailer-relay/tailer/e2e/docs/page"
	"github.com/tailer-relay/tailer/e2e/harness"
	"github.com/tailer-relay/tailer/e2e/host"
	"github.com/tailer-relay/tailer/e2e/kafka"
	"github.com/tailer-relay/tailer/e2e/postgres"
)

// compose is what the tests look at in docker-compose.yml; make lint has it
// read by Docker's own parser.
type compose struct {
	Services map[string]struct {
		Image       string
		Build       struct{ Context, Dockerfile string }
		Command     []string
		Environment map[string]string
		Secrets     []string
		Configs     []struct{ Source, Target string }
		Volumes     []string
		Ports       []string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Healthcheck struct {
			Test    []string
			Disable bool
		}
		ReadOnly bool `yaml:"read_only"`
	}
	Configs, Secrets map[string]struct{ File string }
	Volumes          map[string]any
}

func readCompose(t *testing.T) compose {
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestComposeFile(t *testing.T) {
	c := readCompose(t)
	pinned := regexp.MustCompile(`^[a-z/]+:\d+\.\d+(\.\d+)?$`)
	for name, s := range c.Services {
		if s.Build.Dockerfile != "" {
			if _, err := os.Stat(filepath.Join("../..", s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %s is not pinned to a version", name, s.Image)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to other machines", name, port)
			}
		}
		for key, value := range s.Environment {
			if strings.Contains(key, "PASSWORD") && !strings.HasSuffix(key, "_FILE") {
				t.Errorf("%s: %s=%s stands in clear", name, key, value)
			}
		}
		for _, secret := range s.Secrets {
			if c.Secrets[secret].File == "" {
				t.Errorf("%s: secret %s has no file", name, secret)
			}
		}
		for _, config := range s.Configs {
			if _, err := os.Stat(filepath.Join("../..", c.Configs[config.Source].File)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, named := c.Volumes[source]; named {
				continue
			}
			if _, err := os.Stat(filepath.Join("../..", source)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(s.Healthcheck.Test) == 0 && !s.Healthcheck.Disable {
			t.Errorf("%s: no health check", name)
		}
	}
	for _, order := range [][3]string{
		{"init", "postgres", "service_healthy"},
		{"tailer", "init", "service_completed_successfully"},
		{"tailer", "kafka", "service_healthy"},
	} {
		if got := c.Services[order[0]].DependsOn[order[1]].Condition; got != order[2] {
			t.Errorf("%s waits for %s: %q, not %s", order[0], order[1], got, order[2])
		}
	}
	if !slices.Contains(c.Services["postgres"].Command, "wal_level=logical") {
		t.Error("Postgres does not write what logical decoding needs")
	}
	if !c.Services["tailer"].ReadOnly || !slices.Contains(c.Services["tailer"].Volumes, "tailer-cache:/var/cache/tailer") {
		t.Error("the relay can write elsewhere than into its cache, or not there")
	}
}

// The services as what they are: the role's script, init, and the relay, with
// the commands, variables, secrets and configuration of the file, against a
// Postgres of the file's version that asks for passwords.
func TestComposeServices(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	version, _, _ := strings.Cut(strings.TrimPrefix(c.Services["postgres"].Image, "postgres:"), ".")
	pg := postgres.New(t, postgres.Options{Version: version})
	db := c.Services["postgres"].Environment["POSTGRES_DB"]
	pg.Exec(t, "CREATE DATABASE "+db)
	fake := kafka.NewFake(t, kafka.FakeOptions{})

	doc := page.Open(t, "tutorial.md", "## With containers")
	at := newPlace(t, pg, "postgres:5432", pg.Addr(), "kafka:9093", fake.Addrs()[0])
	at.swap = strings.NewReplacer("@postgres:5432", "@"+pg.Addr(), "kafka:9093", fake.Addrs()[0],
		"/run/secrets", filepath.Join(at.dir, "secrets"), "/etc/tailer/schemas", filepath.Join(at.dir, "examples/schemas"))
	at.sh(doc.Next("sh"))
	secret := map[string]string{}
	for name, s := range c.Secrets {
		path := filepath.Join(at.dir, s.File)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o644 { // another user reads it inside of the container
			t.Errorf("%s has mode %v", s.File, info.Mode())
		}
		text, _ := os.ReadFile(path)
		secret[name] = strings.TrimSpace(string(text))
	}
	if info, err := os.Stat(filepath.Join(at.dir, "secrets")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the secrets: %v, %v", info.Mode(), err)
	}
	pg.Exec(t, "ALTER ROLE postgres PASSWORD '"+secret["postgres_password"]+"'")
	makeRole(t, at, pg, c.Services["postgres"].Environment, secret["relay_password"])
	if err := pg.SetHBA("host all all 127.0.0.1/32 scram-sha-256", "local all all trust"); err != nil {
		t.Fatal(err)
	}

	up := doc.Next("sh")
	if up != "docker compose up --detach --build --wait" {
		t.Errorf("the tutorial starts it by %q", up)
	}
	run := func(service string, port *host.Port, args ...string) *place {
		t.Helper()
		s := c.Services[service]
		in := *at
		in.dir = t.TempDir()
		config, err := os.ReadFile(filepath.Join("../..", c.Configs[s.Configs[0].Source].File))
		if err != nil {
			t.Fatal(err)
		}
		if s.Configs[0].Target != "/etc/tailer/tailer.yaml" {
			t.Fatalf("%s: its configuration is not where the image's working folder is", service)
		}
		in.write("tailer.yaml", strings.ReplaceAll(string(config), "0.0.0.0:9479", fmt.Sprintf("127.0.0.1:%d", port.Number)))
		in.adds = []string{"XDG_CACHE_HOME=" + in.dir}
		for key, value := range s.Environment {
			in.adds = append(in.adds, key+"="+at.swap.Replace(value))
		}
		return &in
	}
	port, err := host.NewPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	tailer := "'" + harness.Binary(t) + "' "
	made := run("init", port).sh(tailer + strings.Join(c.Services["init"].Command, " "))
	if !strings.Contains(made, "role relay exists, skipped") && !strings.Contains(made, `role "relay" exists, skipped`) {
		t.Errorf("the role was not there:\n%s", made)
	}
	in := run("tailer", port)
	relay := in.start(tailer + strings.Join(c.Services["tailer"].Command, " "))
	check := c.Services["tailer"].Healthcheck.Test
	if check[0] != "CMD" || check[1] != "/usr/local/bin/tailer" {
		t.Fatalf("health check %v", check)
	}
	in.ready(tailer+strings.Join(check[2:], " "), relay)

	// The tutorial's own commands.
	insert, ok := strings.CutPrefix(doc.Next("sh"), "docker compose exec -T postgres psql -U postgres "+db+" <<'SQL'\n")
	if !ok {
		t.Fatal("the tutorial writes the event in another way")
	}
	socket, err := connectSocket(t, pg, db)
	if err != nil {
		t.Fatal(err)
	}
	at.sqlOn(socket, strings.TrimSuffix(insert, "\nSQL"))
	record := harness.NewConsumer(t, fake.Addrs(), "order").WaitLen(1, waitLimit)[0]
	if string(record.Key) != "order-42" {
		t.Errorf("key %q", record.Key)
	}
	consume := doc.Next("sh")
	if !strings.HasPrefix(consume, "docker compose exec kafka /opt/kafka/bin/kafka-console-consumer.sh ") || !strings.Contains(consume, " --topic order ") {
		t.Errorf("the tutorial reads by %s", consume)
	}
	status, logs, _ := strings.Cut(doc.Next("sh"), "\n")
	command, ok := strings.CutPrefix(status, "docker compose exec tailer tailer ")
	if !ok || logs != "docker compose logs tailer" {
		t.Fatalf("the tutorial looks by %s, %s", status, logs)
	}
	if out := in.sh(tailer + command); !strings.Contains(out, "active") {
		t.Errorf("status printed\n%s", out)
	}
	relay.stop()
	for _, command := range []string{"docker compose up --detach --force-recreate --no-deps tailer", "docker compose down --volumes"} {
		if got := doc.Next("sh"); got != command {
			t.Errorf("the tutorial has %q", got)
		}
	}
	for _, service := range []string{"postgres", "kafka", "tailer"} {
		variable := strings.ToUpper(service) + "_PORT"
		doc.Says(variable)
		if !strings.Contains(c.Services[service].Ports[0], "${"+variable+":-") {
			t.Errorf("%s: port %s", service, c.Services[service].Ports[0])
		}
	}
	doc.End()
}

// makeRole runs the script that the image of Postgres runs, where there is a
// psql; elsewhere the statement inside of it.
func makeRole(t *testing.T, at *place, pg *postgres.Server, env map[string]string, password string) {
	t.Helper()
	script, err := os.ReadFile("../../deploy/compose/relay-role.sh")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("psql"); err != nil {
		_, sql, _ := strings.Cut(string(script), "<<'SQL'\n")
		pg.Exec(t, strings.ReplaceAll(strings.TrimSuffix(sql, "SQL\n"), ":'password'", "'"+password+"'"))
		return
	}
	in := *at
	in.adds = []string{"PGHOST=127.0.0.1", fmt.Sprintf("PGPORT=%d", pg.Port()), "POSTGRES_DB=" + env["POSTGRES_DB"]}
	in.sh(string(script))
}

// The image's build, but for the copying: its command makes one static binary
// that knows its version.
func TestDockerfileBuild(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var build string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "RUN CGO_ENABLED=0 go build ") {
			build = strings.TrimSpace(strings.TrimPrefix(line, "RUN "))
		}
	}
	if !strings.Contains(build, " -trimpath ") {
		t.Fatalf("the Dockerfile builds by %q", build)
	}
	path := filepath.Join(t.TempDir(), "tailer")
	cmd := exec.Command("sh", "-e", "-c", strings.Replace(build, "/out/tailer", "'"+path+"'", 1))
	cmd.Dir = "../.."
	// For Linux, as in the image, wherever the test runs.
	cmd.Env = append(os.Environ(), "VERSION=9.8.7", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary needs a loader, which the image does not have")
		}
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(binary), "9.8.7") {
		t.Error("the version that the build was given is not in the binary")
	}
	for _, need := range []string{"\nUSER 65532:65532\n", "\nENV XDG_CACHE_HOME=/var/cache/tailer\n", "\nWORKDIR /etc/tailer\n", `CMD ["/usr/local/bin/tailer", "health"]`} {
		if !strings.Contains(string(text), need) {
			t.Errorf("the Dockerfile has no %q", need)
		}
	}
	// The image of Go is at least as new as the module asks for.
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	wants := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))
	has := regexp.MustCompile(`(?m)^FROM golang:(\d+\.\d+)\.\d+ AS`).FindStringSubmatch(string(text))
	if wants == nil || has == nil || wants[1] != has[1] {
		t.Errorf("the module wants Go %v, the image is %v", wants, has)
	}
}
