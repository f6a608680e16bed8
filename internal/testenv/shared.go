package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// A service is something that tests share.
type service struct {
	name string // as in IDEMQ_TEST_REQUIRE
	env  string // the variable with its URL
	// container starts it in Docker; nil where that is not offered.
	container func(ctx context.Context) (url string, err error)
	// local starts the installed program.
	local func() (url string, err error)

	once sync.Once
	url  string
	err  error
}

var services = []*service{redisService, redisClusterService, postgresService, mariadbService, kafkaService, rocketmqService}

// Found is what is known about a shared service.
type Found struct {
	Name string // as in IDEMQ_TEST_REQUIRE
	Env  string // the environment variable that tells tests its URL
	URL  string
	Err  error // why it cannot be had
}

// Shared finds all services that tests share, starting them where that is necessary. It is for commands that do so once for many
// test processes.
func Shared() []Found {
	all := make([]Found, len(services))
	var wait sync.WaitGroup
	for i, s := range services {
		wait.Go(func() {
			url, err := s.find()
			all[i] = Found{s.name, s.env, url, err}
		})
	}
	wait.Wait()
	return all
}

// find returns the URL of the service, which is looked for once.
func (s *service) find() (string, error) {
	s.once.Do(func() { s.url, s.err = s.look() })
	return s.url, s.err
}

func (s *service) look() (string, error) {
	if leftOut(s.name) {
		return "", missingf("left out by IDEMQ_TEST_WITHOUT")
	}
	if url := os.Getenv(s.env); url != "" {
		return url, nil
	}
	via := os.Getenv("IDEMQ_TEST_VIA")
	var noContainer error
	switch {
	case via == "local":
	case s.container == nil:
		noContainer = errors.New("not offered in Docker")
	default:
		var url string
		if url, noContainer = startContainer(s.container); noContainer == nil {
			return url, nil
		}
	}
	if via == "docker" {
		return "", missingf("IDEMQ_TEST_VIA=docker: %v", noContainer)
	}
	url, err := s.local()
	if err != nil && noContainer != nil {
		return "", fmt.Errorf("%w; Docker: %v; set %s to use one that runs", err, noContainer, s.env)
	}
	return url, err
}

// need returns the URL of the service, or skips the test.
func (s *service) need(t testing.TB) string {
	t.Helper()
	if os.Getenv(s.env) == "" {
		notShort(t, s.name)
	}
	url, err := s.find()
	return got(t, s.name, url, err)
}

// launchURL starts an installed program for the whole life of this process.
func launchURL(p program, err error) (string, error) {
	if err != nil {
		return "", err
	}
	s, err := launch(p)
	if err != nil {
		return "", err
	}
	return s.URL, nil
}
