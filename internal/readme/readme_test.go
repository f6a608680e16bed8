package readme_test

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer/policyfile"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what a nil Logger means
	m.Run()
}

const (
	waitFor   = 30 * time.Second
	pollEvery = 50 * time.Millisecond
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	return string(b)
}

func TestReadme_ShowsTheProgramsThatAreTestedHere(t *testing.T) {
	text := readme(t)
	quick, err := os.ReadFile("../../examples/quickstart/main.go")
	require.NoError(t, err)
	_, program, _ := strings.Cut(string(quick), "\n") // without its comment
	require.Contains(t, text, "```go\n"+program+"```", "README.md shows examples/quickstart")
	src, err := os.ReadFile("tenlines_test.go")
	require.NoError(t, err)
	parts := regexp.MustCompile(`(?s)// README: ([^\n]+)\n\n(.*?)\n\n// README: end`).FindAllStringSubmatch(string(src), -1)
	require.Len(t, parts, 2)
	for _, m := range parts {
		require.Contains(t, text, "```go\n"+m[2]+"\n```", "README.md shows %q as it is in tenlines_test.go", m[1])
	}
}

func TestReadme_PolicyIsValid(t *testing.T) {
	m := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(readme(t))
	require.NotNil(t, m)
	_, err := policyfile.Parse("README.md", []byte(m[1]))
	require.NoError(t, err)
}

func TestReadme_NamesMakeTargetsThatExist(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?m)(?:^    |`)make ([a-z-]+)").FindAllStringSubmatch(readme(t), -1) {
		require.Contains(t, string(makefile), "\n"+m[1]+":", "README.md says make %s", m[1])
	}
}

func TestReadme_LinksLeadToFiles(t *testing.T) {
	for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(readme(t), -1) {
		if !strings.Contains(m[1], "://") {
			_, err := os.Stat("../../" + m[1])
			require.NoError(t, err)
		}
	}
}

func TestDocs_NameTestsThatExist(t *testing.T) {
	exist := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(src), -1) {
			exist[m[1]] = true
		}
		return err
	}))
	for _, doc := range []string{"GUARANTEES.md", "PROTOCOL.md", "adr/0006-an-unknown-commit-frees-the-claim-in-redis.md"} {
		text, err := os.ReadFile("../../docs/" + doc)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1) {
			require.True(t, exist[m[1]], "docs/%s names %s", doc, m[1])
		}
	}
}
