package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
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

var services = []*service{redisService, redisClusterService, postgresService, mariadbService, kafkaService}

// Shared returns for each service that tests share its environment variable and its URL, starting it if that is necessary; or,
// for a service that cannot be had, why. It is for commands that start the services once for many test processes.
func Shared(yield func(name, env, url string, err error) bool) {
	for _, s := range services {
		url, err := s.find()
		if !yield(s.name, s.env, url, err) {
			return
		}
	}
}

// find returns the URL of the service, which is looked for once.
func (s *service) find() (string, error) {
	s.once.Do(func() { s.url, s.err = s.look() })
	return s.url, s.err
}

func (s *service) look() (string, error) {
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
