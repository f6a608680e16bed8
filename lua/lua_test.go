package lua

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The header of a script is its contract, so it has to name all that the script takes and answers.

var (
	argument = regexp.MustCompile(`\b(?:ARGV|KEYS)\[\d+\]`)
	replied  = regexp.MustCompile(`\b(?:reply|mark)\('(\w+)'|\breturn \{'(\w+)'|\bcode = '(\w+)'|\] = '(\w+)'`)
)

func scripts(t *testing.T) map[string][2]string {
	t.Helper()
	names, err := filepath.Glob("*.lua")
	if err != nil || len(names) != 12 {
		t.Fatalf("%d scripts, %v", len(names), err)
	}
	found := map[string][2]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		header, body, ok := strings.Cut(string(text), "\n\n")
		if !ok {
			t.Fatalf("%s has no header", name)
		}
		found[name] = [2]string{header, body}
	}
	return found
}

func TestScripts_HeadersNameEveryArgumentAndEveryReply(t *testing.T) {
	for name, parts := range scripts(t) {
		header, body := parts[0], parts[1]
		if !strings.HasPrefix(header, "-- "+name+": ") {
			t.Errorf("%s: the header begins with another name", name)
		}
		if name == "record.lua" {
			continue
		}
		for _, section := range []string{"KEYS[1]", "Replies", "Clock: ", "Atomic"} {
			if !strings.Contains(header, section) {
				t.Errorf("%s: the header does not say: %s", name, section)
			}
		}
		for _, used := range argument.FindAllString(body, -1) {
			if !strings.Contains(header, "-- "+used+" ") {
				t.Errorf("%s: the header does not name %s", name, used)
			}
		}
		for _, named := range argument.FindAllString(header, -1) {
			if !strings.Contains(body, named) {
				t.Errorf("%s: the header names %s, which is not used", name, named)
			}
		}
		codes := 0
		for _, m := range replied.FindAllStringSubmatch(body, -1) {
			code := m[1] + m[2] + m[3] + m[4]
			codes++
			if !strings.Contains(header, "\n--   "+code+" ") {
				t.Errorf("%s: the header does not name the reply %q", name, code)
			}
		}
		if codes < 2 {
			t.Errorf("%s: %d replies found", name, codes)
		}
	}
}

// Redis does not undo a script that fails: a write has to be the last step.
func TestScripts_WriteOnceAndLast(t *testing.T) {
	write := regexp.MustCompile(`(?m)^.*\b(?:store\(KEYS|redis\.call\('(?:SET|DEL)').*$`)
	restart := regexp.MustCompile(`(?m)^.*\brestart_lease\(.*$`)
	for name, parts := range scripts(t) {
		if name == "record.lua" || name == "remember.lua" { // store, restart_lease and mark write once, and their callers return
			continue
		}
		for _, line := range restart.FindAllString(parts[1], -1) {
			if !strings.HasPrefix(strings.TrimSpace(line), "return ") {
				t.Errorf("%s goes on after %q", name, line)
			}
		}
		lines := write.FindAllString(parts[1], -1)
		switch name {
		case "inspect.lua":
			if len(lines) != 0 {
				t.Errorf("%s writes: %q", name, lines)
			}
		default:
			rest := strings.TrimSpace(parts[1][strings.LastIndex(parts[1], lines[len(lines)-1])+len(lines[len(lines)-1]):])
			if len(lines) != 1 || rest != "" && rest != "return reply('ok', now)" && rest != "return {'noted', '', ARGV[1]}" {
				t.Errorf("%s: writes %q, then %q", name, lines, rest)
			}
		}
	}
}

// A script may ask Redis for nothing but these, whose replies do not depend on the server's version.
func TestScripts_UseFewCommandsAndNoGlobals(t *testing.T) {
	called := regexp.MustCompile(`redis\.p?call\('(\w+)'`)
	global := regexp.MustCompile(`(?m)^(?:function |[a-z_]+ = )`)
	for name, parts := range scripts(t) {
		for _, m := range called.FindAllStringSubmatch(parts[1], -1) {
			if !strings.Contains("GET SET DEL TIME", m[1]) {
				t.Errorf("%s calls %s", name, m[1])
			}
		}
		for _, line := range global.FindAllString(parts[1], -1) {
			if declared := "local " + strings.TrimSuffix(strings.TrimSpace(line), " ="); !strings.Contains(parts[1]+record, declared) {
				t.Errorf("%s: global %q", name, line)
			}
		}
	}
}

func TestScripts_AreSentWithTheFormatTheyNeed(t *testing.T) {
	for name, text := range map[string]string{
		"claim": Claim, "renew": Renew, "complete": Complete, "release": Release, "bury": Bury,
		"learn": Learn, "inspect": Inspect, "reopen": Reopen, "forget": Forget,
	} {
		if !strings.HasPrefix(text, record) || !strings.Contains(text, "-- "+name+".lua: ") {
			t.Errorf("%s is not record.lua followed by %s.lua", name, name)
		}
	}
	if strings.Contains(Remember+Mode, record) {
		t.Error("remember.lua works on marks, mode.lua on a note")
	}
}
