// Package lua holds the Redis scripts of idemq, one operation a file.
//
// Each file's header is its contract: purpose, KEYS and ARGV with units, every reply, whose clock, why it is atomic. record.lua is
// the format of the values and the beginning of every script. The scripts are usable from any language: send record.lua followed by
// the operation's file; redisstore is the Go caller. They use nothing newer than Redis 5 has (tested with 7.0), and each
// touches only its KEYS, which share one hash tag.
package lua

import _ "embed"

// The scripts as they are sent to Redis.
var (
	Claim    = record + claim
	Renew    = record + renew
	Complete = record + complete
	Release  = record + release
	Bury     = record + bury
	Learn    = record + learn
	Inspect  = record + inspect
	Reopen   = record + reopen
	Forget   = record + forget
	Remember = remember // works on marks, not on records
	Mode     = mode     // works on a note, not on records
)

var (
	//go:embed record.lua
	record string
	//go:embed claim.lua
	claim string
	//go:embed renew.lua
	renew string
	//go:embed complete.lua
	complete string
	//go:embed release.lua
	release string
	//go:embed bury.lua
	bury string
	//go:embed learn.lua
	learn string
	//go:embed inspect.lua
	inspect string
	//go:embed reopen.lua
	reopen string
	//go:embed forget.lua
	forget string
	//go:embed remember.lua
	remember string
	//go:embed mode.lua
	mode string
)
