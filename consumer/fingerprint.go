package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/idemq/idemq/dedupe"
)

// FingerprintFunc says what must be equal when an id comes again. An error makes the message a dead letter (ReasonUndecodable): what
// cannot be compared could be a second message with a used id.
type FingerprintFunc func(*Message) (dedupe.Fingerprint, error)

func fingerprintBody(m *Message) (dedupe.Fingerprint, error) {
	return dedupe.FingerprintOf(m.Value), nil
}

// FingerprintJSON compares the named fields only: for producers that stamp each send. Paths are as in IDFromJSON. The order of an
// object's fields and white space do not count; a field that is not there differs from null.
func FingerprintJSON(paths ...string) FingerprintFunc {
	steps := make([][]string, len(paths))
	quoted := make([]string, len(paths))
	for i, p := range paths {
		steps[i] = strings.Split(p, ".")
		quoted[i] = strconv.Quote(p)
	}
	name := "json:" + strings.Join(quoted, ",")
	return func(m *Message) (dedupe.Fingerprint, error) {
		parts := make([][]byte, len(paths))
		for i := range paths {
			raw, err := jsonAt(m.Value, steps[i])
			if errors.Is(err, errNoField) {
				continue // no JSON value is empty
			}
			if err == nil {
				parts[i], err = canonical(raw)
			}
			if err != nil {
				return dedupe.Fingerprint{}, fmt.Errorf("consumer: fingerprint of JSON path %q: %w", paths[i], err)
			}
		}
		return dedupe.NamedFingerprint(name, parts...), nil
	}
}

// canonical sorts the fields of objects, drops white space and keeps numbers as they are written.
func canonical(raw json.RawMessage) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, jsonError(err)
	}
	return json.Marshal(v)
}

// NoFingerprint: an id is trusted blindly. A second message with a used id vanishes as a duplicate.
func NoFingerprint() FingerprintFunc {
	return func(*Message) (dedupe.Fingerprint, error) { return dedupe.NoFingerprint, nil }
}
