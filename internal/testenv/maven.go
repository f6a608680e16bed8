package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mavenJars returns the directory with an artifact and all that it needs, which is fetched once, by Maven. Dependencies are
// group:artifact:version.
func mavenJars(name string, dependencies ...string) (string, error) {
	dir, err := cached(name, func(dir string) error {
		mvn, err := exec.LookPath("mvn")
		if err != nil {
			return missing("mvn, which fetches it, is not installed")
		}
		if err := os.WriteFile(filepath.Join(dir, "pom.xml"), []byte(pom(dependencies)), 0o644); err != nil {
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

func pom(dependencies []string) string {
	var text strings.Builder
	text.WriteString(`<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>idemq.test</groupId>
  <artifactId>services</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
`)
	for _, dependency := range dependencies {
		part := strings.Split(dependency, ":")
		fmt.Fprintf(&text, "    <dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n", part[0], part[1], part[2])
	}
	text.WriteString("  </dependencies>\n</project>\n")
	return text.String()
}

// versionOf is what the environment says, or else usual.
func versionOf(env, usual string) string {
	if version := os.Getenv(env); version != "" {
		return version
	}
	return usual
}

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
