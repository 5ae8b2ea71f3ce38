package kafka

import "regexp"

// Version is the version of the real broker.
func Version() string {
	return regexp.MustCompile(`<artifactId>kafka_[\d.]+</artifactId><version>([\d.]+)<`).FindStringSubmatch(pom)[1]
}
