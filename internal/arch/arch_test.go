// Package arch checks who imports whom, so that the layers stay what docs/ARCHITECTURE.md says they are.
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/idemq/idemq/"

// mayImport has, for the folders of the module, the folders that their packages may import besides those of their own folder. The
// longest folder that fits a package counts; a folder that is not there yet is no mistake.
var mayImport = map[string][]string{
	"lua":                  {},
	"dedupe":               {"internal"},
	"dedupe/redisstore":    {"dedupe", "lua", "internal"},
	"dedupe/sqlstore":      {"dedupe", "internal"},
	"dedupe/memstore":      {"dedupe", "internal"},
	"dedupe/storetest":     {"dedupe", "dedupe/memstore", "internal"}, // the reference that histories are compared with
	"consumer":             {"dedupe", "internal"},
	"consumer/policyfile":  {"consumer", "dedupe", "internal"},
	"adapters":             {"consumer", "dedupe", "internal", "internal/remoting"},
	"adapters/adaptertest": {"consumer", "dedupe", "dedupe/memstore", "internal"},
	"telemetry":            {"consumer", "dedupe", "internal"},
	"cmd":                  anything,
	"examples":             anything,
	"bench":                anything,
	"internal":             {"consumer", "dedupe", "internal"},
	"internal/arch":        {},
	"internal/remoting":    {},
	"internal/testenv":     {"internal/remoting"},
}

var anything = []string{""}

// standardOnly have no dependency but the standard library, in whatever depth.
var standardOnly = []string{"lua", "dedupe", "consumer"}

// onlyIn has the one folder that may know a client library. Examples, benchmarks and the test environment
// drive the libraries themselves, and are exempt, as are test files.
var onlyIn = map[string]string{
	"github.com/segmentio/kafka-go":           "adapters/kafka",
	"github.com/apache/rocketmq-client-go":    "adapters/rocketmq",
	"github.com/redis/go-redis":               "dedupe/redisstore",
	"github.com/jmoiron/sqlx":                 "dedupe/sqlstore",
	"github.com/go-sql-driver/mysql":          "dedupe/sqlstore",
	"github.com/jackc/pgx":                    "dedupe/sqlstore",
	"modernc.org/sqlite":                      "dedupe/sqlstore",
	"github.com/goccy/go-yaml":                "consumer/policyfile",
	"github.com/testcontainers":               "internal/testenv",
	"github.com/idemq/idemq/internal/testenv": "internal/testenv",
}

var exempt = []string{"bench", "examples", "internal/testenv"}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func (p pkg) folder() string { return strings.TrimPrefix(p.ImportPath, module) }

func TestPackagesImportOnlyWhatTheirLayerMay(t *testing.T) {
	for _, p := range packages(t) {
		rule := longest(mayImport, p.folder())
		if rule == "" {
			t.Errorf("%s: no rule for this folder; add it to mayImport", p.folder())
			continue
		}
		allowed := append([]string{rule}, mayImport[rule]...)
		for _, imported := range p.Imports {
			target, ours := strings.CutPrefix(imported, module)
			if ours && !slices.ContainsFunc(allowed, func(folder string) bool { return covers(folder, target) }) {
				t.Errorf("%s may not import %s", p.folder(), target)
			}
		}
	}
}

// covers reports whether a rule about folder is about target: the narrowest rule is.
func covers(folder, target string) bool {
	return folder == "" || folder == longest(mayImport, target)
}

func TestTheCoreNeedsTheStandardLibraryOnly(t *testing.T) {
	for _, p := range packages(t) {
		if !slices.Contains(standardOnly, p.folder()) {
			continue
		}
		for _, dep := range p.Deps {
			first, _, _ := strings.Cut(dep, "/")
			if strings.Contains(first, ".") && !strings.HasPrefix(dep, module) {
				t.Errorf("%s needs %s", p.folder(), dep)
			}
		}
	}
}

func TestEachClientLibraryIsKnownInOnePlace(t *testing.T) {
	for _, p := range packages(t) {
		if slices.ContainsFunc(exempt, func(folder string) bool { return within(folder, p.folder()) }) {
			continue
		}
		for _, imported := range p.Imports {
			library := longest(onlyIn, imported)
			if library != "" && !within(onlyIn[library], p.folder()) {
				t.Errorf("%s imports %s, which belongs in %s", p.folder(), imported, onlyIn[library])
			}
		}
	}
}

func TestNoWorkIsLeftInComments(t *testing.T) {
	marks := [][]byte{[]byte("TO" + "DO"), []byte("FIX" + "ME")}
	root := moduleRoot(t)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		for _, mark := range marks {
			if bytes.Contains(text, mark) {
				t.Errorf("%s has a %s", path, mark)
			}
		}
		return err
	})
	require.NoError(t, err)
}

func TestRulesTellGoodFromBad(t *testing.T) {
	require.Equal(t, "dedupe/redisstore", longest(mayImport, "dedupe/redisstore"))
	require.Equal(t, "dedupe/sqlstore", longest(mayImport, "dedupe/sqlstore/postgres"))
	require.Equal(t, "internal", longest(mayImport, "internal/coalesce"))
	require.Empty(t, longest(mayImport, "dedupes"))
	require.True(t, covers("dedupe", "dedupe"))
	require.False(t, covers("dedupe", "dedupe/redisstore"), "who may import dedupe may not import its stores")
	require.True(t, covers("", "dedupe/redisstore"))
	require.Equal(t, "github.com/redis/go-redis", longest(onlyIn, "github.com/redis/go-redis/v9/internal"))
	require.Empty(t, longest(onlyIn, "github.com/redis/other"))
}

// longest is the longest key that is path or a folder above it.
func longest[V any](rules map[string]V, path string) string {
	best := ""
	for folder := range rules {
		if within(folder, path) && len(folder) > len(best) {
			best = folder
		}
	}
	return best
}

func within(folder, path string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// packages lists the packages of the module. Those that do not build are listed too: other tests will say so.
func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = moduleRoot(t)
	out, err := cmd.Output()
	require.NoError(t, err)
	var all []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	require.NoError(t, err)
	return filepath.Dir(string(bytes.TrimSpace(out)))
}
