package kafka

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tailer-relay/tailer/e2e/host"
)

// pom names what a broker is made of. Kafka brings slf4j's API 1.7, and a
// binding of any other line would be ignored without a word.
const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tailer</groupId>
  <artifactId>e2e-kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.1.2</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.1.2</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

// libraries returns the folder with Kafka's jars, fetching them the first time.
func libraries(ctx context.Context) (string, error) {
	if err := need("java", "default-jre-headless"); err != nil {
		return "", err
	}
	name := fmt.Sprintf("kafka-%x", sha256.Sum256([]byte(pom)))[:18]
	dir, err := host.Cached(ctx, name, func(dir string) error {
		if err := need("mvn", "maven"); err != nil {
			return err
		}
		file := filepath.Join(dir, "pom.xml")
		if err := os.WriteFile(file, []byte(pom), 0o644); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies",
			"-DoutputDirectory="+filepath.Join(dir, "libs"), "-DincludeScope=runtime")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("fetch Kafka with Maven: %w\n%s", err, out)
		}
		return nil
	})
	return filepath.Join(dir, "libs"), err
}

var installing sync.Mutex

// need makes sure of a program. On Debian and as root it installs it, which is
// how a fresh container runs the tests; elsewhere it says what to type.
func need(program, pkg string) error {
	installing.Lock()
	defer installing.Unlock()
	if _, err := exec.LookPath(program); err == nil {
		return nil
	}
	command := "apt-get install -y " + pkg
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("the real Kafka needs %s (Java 17 or newer, and Maven): install it and try again", program)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("the real Kafka needs %s: sudo %s", program, command)
	}
	install := func(args ...string) error {
		cmd := exec.Command("apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	args := []string{"install", "-y", "-q", "--no-install-recommends", pkg}
	first := install(args...)
	if first == nil {
		return nil
	}
	// A container's package lists may be missing or old.
	if err := install("update", "-q"); err != nil {
		return errors.Join(first, err)
	}
	return install(args...)
}
