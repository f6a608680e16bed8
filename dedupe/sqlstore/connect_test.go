package sqlstore_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

func TestCheck_WrongURL_SaysWhatToDoAndNoCredentials(t *testing.T) {
	for _, c := range []struct {
		name, remedy string
		change       func(*url.URL)
	}{
		{"wrong password", "correct user and password in the database URL", func(u *url.URL) { u.User = url.UserPassword("idemq", "secret-and-wrong") }},
		{"no such database", "create the database first", func(u *url.URL) { u.Path = "/not_there" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, servers, func(t *testing.T, d database) {
				u, err := url.Parse(d.url(t))
				require.NoError(t, err)
				c.change(u)
				_, err = newLog(t, open(t, u.String())).Check(t.Context(), dedupe.CheckEnv{})
				require.ErrorContains(t, err, c.remedy)
				require.NotContains(t, err.Error(), "\n")
				require.NotContains(t, err.Error(), "secret")
				require.NotContains(t, err.Error(), "idemq:")
				if d.name == "PostgreSQL" { // the driver for MariaDB does not say it
					require.Contains(t, err.Error(), u.Host)
				}
			})
		})
	}
}
