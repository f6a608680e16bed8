package policyfile

import (
	"strings"

	"github.com/idemq/idemq/consumer"
)

// suggest is the remedy for an unknown field: a name that is nearly the same, or the same name in another section, or what there is.
func suggest(key, path string, fs []field) string {
	best, least := "", 3
	var known []string
	for _, f := range fs {
		known = append(known, f.name)
		if d := distance(key, f.name); d < least {
			best, least = f.name, d
		}
	}
	if best != "" && least <= max(len(key)/3, 1) {
		return "did you mean " + best + "?"
	}
	var p consumer.Policy
	if elsewhere := find(key, "", fields(&p)); elsewhere != "" && elsewhere != path+"."+key {
		return "did you mean " + elsewhere + "?"
	}
	return "known here: " + strings.Join(known, ", ")
}

func find(key, path string, fs []field) string {
	for _, f := range fs {
		if f.name == key {
			return path + f.name
		}
		if s, ok := f.value.(section); ok {
			if at := find(key, path+f.name+".", s); at != "" {
				return at
			}
		}
	}
	return ""
}

// distance is how many bytes to insert, remove, replace or swap with their neighbour make b of a; no less than the difference of lengths.
func distance(a, b string) int {
	if more := len(a) - len(b); more > 2 || more < -2 {
		return max(more, -more)
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
