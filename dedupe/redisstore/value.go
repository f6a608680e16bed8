package redisstore

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// states are the words of the values, in lua/record.lua and here.
var states = map[string]dedupe.State{
	dedupe.StateFree.String():    dedupe.StateFree,
	dedupe.StateClaimed.String(): dedupe.StateClaimed,
	dedupe.StateDead.String():    dedupe.StateDead,
	dedupe.StateDone.String():    dedupe.StateDone,
}

var errValue = errors.New("a script replied with a value that lua/record.lua does not describe")

// decode reads a value as lua/record.lua describes it; now is the server's clock in milliseconds. The empty value is an absent key.
func decode(k dedupe.Key, value string, now int64) (dedupe.Record, error) {
	rec := dedupe.Record{Key: k}
	if value == "" {
		return rec, nil
	}
	head, tail, _ := strings.Cut(value, "\n")
	fields := strings.Split(head, " ")
	if len(fields) != 19 || fields[0] != "idemq1" {
		return rec, errValue
	}
	rec.State = states[fields[1]]
	var n [17]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(fields[2+i], 10, 64); err != nil || n[i] < 0 {
			return rec, errValue
		}
	}
	var text [6]string
	for i := range text {
		length := n[11+i]
		if length > int64(len(tail)) {
			return rec, errValue
		}
		text[i], tail = tail[:length], tail[length:]
	}
	if rec.State == dedupe.StateAbsent || tail != "" {
		return rec, errValue
	}
	rec.Fence = n[0]
	if rec.State == dedupe.StateClaimed {
		rec.LeaseLeft = time.Duration(n[1]-now) * time.Millisecond
	}
	rec.Failures, rec.Deaths, rec.AloneDeaths, rec.Alone = int(n[2]), int(n[3]), int(n[4]), n[5] == 1
	rec.Generation = int(n[6])
	rec.CreatedAt, rec.UpdatedAt = time.UnixMilli(n[7]), time.UnixMilli(n[8])
	if rec.State == dedupe.StateDone {
		rec.ExpiresAt = time.UnixMilli(n[9])
	}
	rec.Owner, rec.Incarnation = dedupe.Owner(text[0]), dedupe.Incarnation(text[1])
	copy(rec.Fingerprint[:], text[2])
	rec.Original, rec.Reason = text[3], text[5]
	if text[4] != "" {
		rec.Result = []byte(text[4])
	}
	return rec, nil
}

// Arguments of scripts. Numbers travel as decimal digits.

func millis(d time.Duration) string {
	if d <= 0 {
		return "0"
	}
	ms := d / time.Millisecond
	if d%time.Millisecond != 0 {
		ms++ // a lease or retention is never shorter than asked for
	}
	return strconv.FormatInt(int64(ms), 10)
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// fingerprint is empty for the zero Fingerprint.
func fingerprint(f dedupe.Fingerprint) string {
	if f.IsZero() {
		return ""
	}
	return string(bytes.Clone(f[:]))
}
