package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

func kafkaVersion() string {
	if version := os.Getenv("IDEMQ_KAFKA_VERSION"); version != "" {
		return version
	}
	return "4.4.0"
}

// kafkaJars returns the directory with Kafka's jars, which are fetched once, by Maven.
func kafkaJars() (string, error) {
	dir, err := cached("kafka-"+kafkaVersion(), func(dir string) error {
		mvn, err := exec.LookPath("mvn")
		if err != nil {
			return missing("mvn, which fetches it, is not installed")
		}
		if err := os.WriteFile(filepath.Join(dir, "pom.xml"), []byte(fmt.Sprintf(pom, kafkaVersion())), 0o644); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return missingf("mvn could not fetch it: %v: %s", err, firstLine(string(out)))
		}
		return nil
	})
	return filepath.Join(dir, "lib"), err
}

const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>idemq.test</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>%s</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

var javaVersion = regexp.MustCompile(`version "((\d+)[^"]*)"`)

// findJava returns the program, and its version in full.
func findJava() (path, version string, err error) {
	path = "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		path = filepath.Join(home, "bin", "java")
	}
	if path, err = exec.LookPath(path); err != nil {
		return "", "", missing("java is not installed")
	}
	out, err := exec.Command(path, "-version").CombinedOutput()
	found := javaVersion.FindStringSubmatch(string(out))
	if err != nil || found == nil {
		return "", "", missingf("%s does not tell its version: %s", path, firstLine(string(out)))
	}
	if atoi(found[2]) < 17 {
		return "", "", missingf("java 17 or newer is needed, and %s is %s", path, found[1])
	}
	return path, found[1], nil
}
