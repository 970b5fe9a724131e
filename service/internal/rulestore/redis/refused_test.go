package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// replying is a connection to a server that has one answer to scripts.
type replying struct {
	redisconn.Conn
	err error
}

func (r replying) Eval(context.Context, *redisconn.Script, []string, []string) (string, error) {
	return "", r.err
}

func (replying) Close() {}

// reply is an error of the server's, as go-redis has them.
type reply string

func (r reply) Error() string { return string(r) }

func (reply) RedisError() {}

// An edit that was refused before anything was written has another error than one that may have been made.
func TestRefused(t *testing.T) {
	const script6 = "ERR Error running script (call to f_0a1b): @user_script:47: @user_script: 47: -"
	for _, test := range []struct {
		err     error
		refused bool
	}{
		{reply("OOM command not allowed when used memory > 'maxmemory'. script: 0a1b, on @user_script:44."), true},
		{reply(script6 + "OOM command not allowed when used memory > 'maxmemory'."), true},
		{reply(script6 + "READONLY You can't write against a read only replica."), true},
		{reply(script6 + "MISCONF Redis is configured to save RDB snapshots"), true},
		{reply("NOREPLICAS Not enough good replicas to write."), true},
		{reply("NOAUTH Authentication required."), true},
		{reply("NOPERM this user has no permissions to run the 'evalsha' command or its subcommand"), true},
		{reply("LOADING Redis is loading the dataset in memory"), true},
		{reply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), true},
		{reply("CLUSTERDOWN The cluster is down"), true},
		{reply("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."), true},
		{fmt.Errorf("the greeting: %w", reply("WRONGPASS invalid username-password pair or user is disabled.")), true},
		{reply(script6 + "NOPERM The user executing the script can't run this command or subcommand"), true},
		{reply("ERR The user executing the script can't run this command or subcommand script: 0a1b, on @user_script:47."), true},
		{reply("ERR ACL failure in script: User default has no permissions to run the 'hset' command script: 0a1b, on @user_script:26."), true},
		{reply("BUSYGROUP Consumer Group name already exists"), false},
		{reply("ERR user_script:60: attempt to index a nil value"), false},
		{errors.New("OOM of something else"), false},
		{context.DeadlineExceeded, false},
	} {
		next := rulestore.Revision{Info: rulestore.Info{ID: rulestore.ID{Number: 1, At: 1}}}
		err := openOn(t, replying{err: test.err}, "").Put(t.Context(), rulestore.ID{}, &next)
		if !errors.Is(err, stint.ErrUnavailable) || errors.Is(err, rulestore.ErrRefused) != test.refused {
			t.Errorf("%v becomes %v; want refused: %v", test.err, err, test.refused)
		}
	}
}
