package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/decide"
)

// What Go and Lua have to agree on. Every script of a batch begins with these values as Lua's locals
// ([luaProtocol]), so each is written once.

// How replies begin.
const (
	replyDecided = 0
	replyAsks    = 1 // nothing was done: other windows of calendars are needed
	replyWhole   = 2 // nothing was done: the script for one take can't decide this one
	replyStale   = 3 // nothing was done: the layout or an epoch is another
	replyHolds   = 4 // nothing was done: permits of a state are held
)

// How values begin that clients have in a hash, and in place of which they are in a reply.
const (
	tagInline = 63  // its parameters follow; below it is the number of its parameters in the head
	tagHeld   = 64  // permits are held: holds.lua describes what follows
	tagWide   = 128 // is added when each number has 8 bytes
	tagNone   = 254 // in a reply: there is none
	tagPrev   = 255 // in a reply: the value of the generation before follows
)

// headBytes is how long a generation's head is before the parameters of limits.
const headBytes = 32

// verbNames are the verbs of the first part's operations, from 0.
var verbNames = []string{
	stint.VerbTake: "take", stint.VerbTry: "try", stint.VerbPeek: "peek", stint.VerbReset: "reset",
	stint.VerbSettle: "settle", stint.VerbReserve: "reserve", stint.VerbCommit: "commit", stint.VerbCancel: "cancel",
	stint.VerbDrop: "drop", stint.VerbList: "list",
	Refund: "refund", ReturnLease: "return_lease", bulkTake: "bulk",
}

// limitNumbers are the numbers by which a limit is described behind its letter, each of 8 bytes. Times are
// microseconds; life is the longest that a state matters; permits:period is a rate in lowest
// terms; queue is 1 of a leaky bucket; start and end are the window of the calendar that holds a time, before
// and after its neighbours' start and end; step is of what windows' starts are multiples; counts is 1 when
// denied requests are counted.
var limitNumbers = map[string]string{
	"t": "capacity debt life permits period queue",   // token bucket, leaky bucket
	"f": "capacity debt life length step",            // fixed window
	"d": "capacity debt life length step",            // fixed window of denials
	"c": "capacity debt life before start end after", // fixed window by the calendar
	"s": "capacity debt life window",                 // sliding window counter
	"p": "capacity debt life window interval counts", // sliding window log as a packed string
	"z": "capacity debt life window interval counts", // as a sorted set
	"x": "capacity debt life window interval counts", // as a stream
	"n": "capacity debt life",                        // concurrency
}

// limitFormat is how Lua reads the numbers.
func limitFormat(letter string) string {
	return ">" + strings.Repeat("i8", len(strings.Fields(limitNumbers[letter])))
}

// luaProtocol is the protocol for Lua.
func luaProtocol() string {
	var lua strings.Builder
	for _, text := range []struct {
		name string
		code int
	}{
		{"DECIDED", replyDecided},
		{"ASKS", replyAsks},
		{"WHOLE", replyWhole},
		{"STALE", replyStale},
		{"HOLDS", replyHolds},
		{"NONE", tagNone},
		{"PREV", tagPrev},
	} {
		fmt.Fprintf(&lua, "local %s = '\\%d'\n", text.name, text.code)
	}
	fmt.Fprintf(&lua, "local INLINE = %d\nlocal WIDE = %d\nlocal HEAD_BYTES = %d\nlocal HELD = %d\n", tagInline, tagWide,
		headBytes, tagHeld)
	fmt.Fprintf(&lua, "local PER_GROUP = %d\nlocal MAX_WAYS = %d\nlocal ASIDE = %d\n", decide.PerGroup, bounds.MaxWays,
		decide.Aside)
	fmt.Fprintf(&lua, "local verbs = { [0] = '%s' }\n", strings.Join(verbNames, "', '"))
	var formats []string
	for letter := range limitNumbers {
		formats = append(formats, letter+" = '"+limitFormat(letter)+"'")
	}
	slices.Sort(formats)
	fmt.Fprintf(&lua, "local formats = { %s }\n", strings.Join(formats, ", "))
	return lua.String()
}
