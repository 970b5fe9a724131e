package chaos_test

import (
	_ "embed" // the preloaded library's source
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// libfaketime does not get along with the jemalloc of Debian's redis-server, which
// asks for the time before the library is ready.
//
//go:embed testdata/clock.c
var clockC []byte

// shiftable starts a server whose wall clock shift makes differ from the machine's, from then
// on and over restarts. It needs the C compiler that the race detector needs too.
func shiftable(t testing.TB, opts ...testredis.Option) (server *testredis.Server, shift func(time.Duration)) {
	t.Helper()
	dir := t.TempDir()
	source, library, file := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so"), filepath.Join(dir, "shift")
	must.Do(t, os.WriteFile(source, clockC, 0o600))
	if out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("the C compiler: %v\n%s", err, out)
	}
	must.Do(t, os.WriteFile(file, make([]byte, 8), 0o600))
	mapped := must.Get(os.OpenFile(file, os.O_RDWR, 0))(t)
	t.Cleanup(func() { _ = mapped.Close() })
	server = testredis.Start(t, append(opts, testredis.Env("LD_PRELOAD="+library, "CLOCK_SHIFT_FILE="+file))...)
	return server, func(d time.Duration) {
		// In place, since the server has the file mapped.
		_, err := mapped.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())), 0)
		must.Do(t, err)
	}
}

// The server's clock follows a shift at once, in TIME, in scripts and for times to
// live, and over a restart.
func TestShiftedClock(t *testing.T) {
	server, shift := shiftable(t, durable...)
	do := func(args ...any) any { return must.Get(server.Do(args...))(t) }
	ahead := func() time.Duration {
		seconds := do("EVAL", "return tonumber(redis.call('TIME')[1])", 0).(int64)
		return time.Until(time.Unix(seconds, 0)).Round(time.Minute)
	}
	do("SET", "k", "v", "EX", 1800)
	for _, d := range []time.Duration{0, -time.Hour, time.Hour} {
		shift(d)
		if got := ahead(); got != d {
			t.Errorf("the clock is %v ahead, want %v", got, d)
		}
	}
	if got := do("GET", "k"); got != nil {
		t.Errorf("got %v an hour later, want nothing", got)
	}
	server.Restart(t)
	if got := ahead(); got != time.Hour {
		t.Errorf("after a restart the clock is %v ahead, want an hour", got)
	}
}
