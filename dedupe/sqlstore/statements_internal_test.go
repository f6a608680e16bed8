package sqlstore

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func filesOf(t *testing.T, d Dialect) (names []string) {
	t.Helper()
	entries, err := fs.ReadDir(embedded, string(d))
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestStatements_SameNamesInAllDialects(t *testing.T) {
	require.Equal(t, filesOf(t, Postgres), filesOf(t, MySQL))
	require.Equal(t, filesOf(t, Postgres), filesOf(t, SQLite))
}

// Each file says what it does, names every parameter that it has, and is one statement.
func TestStatements_EachFileExplainsItselfAndIsOneStatement(t *testing.T) {
	for d := range dialects {
		for _, name := range filesOf(t, d) {
			b, err := fs.ReadFile(embedded, path.Join(string(d), name))
			require.NoError(t, err)
			text := string(b)
			where := string(d) + "/" + name
			require.True(t, strings.HasPrefix(text, "-- "), where)
			body := withoutComments(text)
			head := strings.TrimSuffix(text, body+"\n")
			require.NotContains(t, body, "--", "%s: a comment inside the statement", where)
			require.NotContains(t, body, ";", where)
			if body == "" {
				require.Regexp(t, `(?i)empty`, head, where)
			}
			for _, p := range parameter.FindAllString(body, -1) {
				require.True(t, explained(head, p), "%s: %s is not explained", where, p)
			}
			for _, line := range strings.Split(head, "\n") {
				require.LessOrEqual(t, len(line), 114, where)
			}
		}
	}
}

// explained: the header names p, or refers to the file that does.
func explained(head, p string) bool {
	return regexp.MustCompile(p + `\b`).MatchString(head)
}

func TestStatements_NoPlaceholderIsLeft(t *testing.T) {
	for name, d := range dialects {
		for _, joined := range []bool{false, true} {
			st, err := load(embedded, d, Config{Dialect: name, Table: "t", Schema: "s"}, joined)
			require.NoError(t, err)
			require.NotEmpty(t, st)
			for file, s := range st {
				require.NotRegexp(t, `\{\{|\}\}|:[a-z]`, s.query+s.silent, file)
				require.NotContains(t, s.silent, "RETURNING", file)
			}
		}
	}
}

// columnsOf are the columns of both tables, read from the files that make them.
func columnsOf(t *testing.T, d Dialect) (names []string) {
	t.Helper()
	for _, file := range []string{"v1_1_meta.sql", "v1_2_log.sql"} {
		b, err := fs.ReadFile(embedded, path.Join(string(d), file))
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^    ([a-z_]+) +[A-Za-z]+.* NULL|^    (result) `).FindAllStringSubmatch(string(b), -1) {
			names = append(names, m[1]+m[2])
		}
	}
	return names
}

func TestColumnPrefix_NoOtherColumnIsLeftInAnyStatement(t *testing.T) {
	literal := regexp.MustCompile(`'[^']*'`)
	for name, d := range dialects {
		columns := columnsOf(t, name)
		require.Len(t, columns, 9+20)
		unprefixed := regexp.MustCompile(`\b(` + strings.Join(columns, "|") + `)\b`)
		plain, err := load(embedded, d, Config{Dialect: name, Table: "log"}, true)
		require.NoError(t, err)
		prefixed, err := load(embedded, d, Config{Dialect: name, Table: "log", ColumnPrefix: "idem_"}, true)
		require.NoError(t, err)
		for file, s := range prefixed {
			for i, sql := range []string{s.query, s.silent} {
				require.NotRegexp(t, unprefixed, literal.ReplaceAllString(sql, ""), "%s/%s", name, file)
				was := []string{plain[file].query, plain[file].silent}[i]
				require.Equal(t, was, regexp.MustCompile(`\bidem_`).ReplaceAllString(sql, ""), "%s/%s: nothing else is changed", name, file)
			}
			require.Equal(t, plain[file].names, s.names, "%s/%s: parameters keep their names", name, file)
		}
		require.Regexp(t, unprefixed, plain["claim_insert"].query)
	}
}

// What looks like a column and is none stays: literals, parameters, placeholders, aliases, parts of longer names.
func TestPrefixColumns_OnlyNamesOfColumns(t *testing.T) {
	require.Equal(t,
		`SELECT m.p_state, p_owner, lease_left AS present, 'the state', :owner, {{incarnation}}, restate, "p_mode", x'23'`,
		prefixColumns(`SELECT m.state, owner, lease_left AS present, 'the state', :owner, {{incarnation}}, restate, "mode", x'23'`, "p_"))
}

func TestColumnPrefix_FitsInEveryDialect(t *testing.T) {
	longest := strings.Repeat("a", maxPrefixBytes)
	for d := range dialects {
		for _, name := range columnsOf(t, d) {
			require.LessOrEqual(t, len(longest+name), 63, name)
		}
	}
	good := Config{Dialect: Postgres, ColumnPrefix: longest}
	require.NoError(t, good.setDefaults(""))
	for _, bad := range []string{longest + "a", "Idem_", `i"`, "i`", "i.", "i ", "1i", "ä", "i-", "i;", "i'", "{{i}}", ":i", "\n"} {
		cfg := Config{Dialect: Postgres, ColumnPrefix: bad}
		require.ErrorContains(t, cfg.setDefaults(""), "Config.ColumnPrefix", bad)
	}
}

func TestBind_MissingArgument_IsAnError(t *testing.T) {
	query, names := dialects[Postgres].mark("SELECT :a, :b, :a")
	require.Equal(t, "SELECT $1, $2, $1", query)
	values, err := statement{names: names}.bind(args{"a": 1, "b": nil})
	require.NoError(t, err)
	require.Equal(t, []any{1, nil}, values)
	_, err = statement{names: names}.bind(args{"a": 1})
	require.ErrorContains(t, err, ":b")

	query, names = dialects[MySQL].mark("SELECT :a, :b, :a")
	require.Equal(t, "SELECT ?, ?, ?", query)
	require.Equal(t, []string{"a", "b", "a"}, names)
}

func TestNames_OnlyIdentifiersReachTheStatements(t *testing.T) {
	for _, bad := range []string{`a"b`, "a`b", "a b", "a;b", "a.b", "1a", "ä", "a-b", "a'", "", strings.Repeat("a", 58)} {
		cfg := Config{Dialect: Postgres, Table: bad}
		if bad == "" {
			cfg = Config{Dialect: Postgres, Schema: " "}
		}
		require.Error(t, cfg.setDefaults(""), bad)
	}
	cfg := Config{Dialect: Postgres, Table: "Shop_log", Schema: "Billing"}
	require.NoError(t, cfg.setDefaults(""))
	require.Equal(t, `"Billing"."Shop_log_meta"`, dialects[Postgres].names(cfg)["meta"])
}
