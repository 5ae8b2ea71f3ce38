package kafka

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

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
	if err := host.Need("java", "default-jre-headless", "the real Kafka needs Java 17 or newer"); err != nil {
		return "", err
	}
	name := fmt.Sprintf("kafka-%x", sha256.Sum256([]byte(pom)))[:18]
	dir, err := host.Cached(ctx, name, func(dir string) error {
		if err := host.Need("mvn", "maven", "the real Kafka comes through Maven"); err != nil {
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
