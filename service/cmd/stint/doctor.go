package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/service/internal/config"
)

// The doctor speaks if the server's clock is further away than clockTolerance, or if the median of
// tripsTimed round trips is above 1/tripShare of the store's timeout: then a busy moment makes
// decisions degraded.
const (
	findingUnknown     = "unknown"
	findingOK          = "ok"
	findingAdvice      = "advice"
	findingWrong       = "wrong"
	findingUnreachable = "unreachable"
)

// findingCodes are the exit codes of findings; the largest counts. What is unknown or well has no
// code, and leaves 0.
var findingCodes = map[string]int{findingAdvice: 1, findingWrong: exitUsage, findingUnreachable: exitUnreachable}

// A finding is one thing that the doctor looked at.
type finding struct {
	Status string `json:"status"`
	Check  string `json:"check"`
	Server string `json:"server,omitempty"` // of the store
	Found  string `json:"found"`
	Change string `json:"change,omitempty"` // what it would change, and why
}

// A doctor looks at a configuration and its store. It changes nothing but a key of its own, which
// soon expires.
type doctor struct {
	config   config.Config
	findings []finding
}

// ok notes that something is as it should be. The other findings are those of the next functions:
// what can't be told, what would be better otherwise, what is wrong, and what can't be reached.
func (d *doctor) ok(check, server, found string) {
	d.findings = append(d.findings, finding{findingOK, check, server, found, ""})
}

// unknown notes that something could not be looked at, for want of a right for example.
func (d *doctor) unknown(check, server, found string) {
	d.findings = append(d.findings, finding{findingUnknown, check, server, found, ""})
}

// advise notes what works and would be better otherwise, with what to change.
func (d *doctor) advise(check, server, found, change string) {
	d.findings = append(d.findings, finding{findingAdvice, check, server, found, change})
}

// wrong notes what does not work as it is configured.
func (d *doctor) wrong(check, server, found, change string) {
	d.findings = append(d.findings, finding{findingWrong, check, server, found, change})
}

// unreachable notes what did not answer.
func (d *doctor) unreachable(check, server, found, change string) {
	d.findings = append(d.findings, finding{findingUnreachable, check, server, found, change})
}

// doctorCommand is `stint doctor`. It looks at everything before it says anything, so that one run
// shows all there is to change.
func doctorCommand(p process) *cobra.Command {
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Look at a configuration, its rules and its store, and say what to change",
		Long: "Look at a configuration, its rules and its store: versions, rights, settings, clocks and round\n" +
			"trips of Redis. Run it with the file and the variables of the service. It changes nothing; " +
			"it decides with a key of\n" +
			"its own, whose state expires within minutes.\n\n" +
			"It exits with 0 when all is well, 1 with advice, 2 when something is configured wrongly, and 4\n" +
			"when the store or the rules can't be reached.",
		Args: cobra.NoArgs,
	}
	load := settingFlags(p, command.Flags(), append(storeSettings(), "rules_from")...)
	asJSON := jsonFlag(command)
	timeout := 5 * time.Second
	command.Flags().Var((*timeoutFlag)(&timeout), "timeout", "longest `DURATION` to wait for the store, and for the rules")
	command.RunE = func(command *cobra.Command, _ []string) error {
		loaded, err := load()
		if err != nil {
			return err
		}
		d := &doctor{config: loaded}
		d.lookAtConfiguration()
		d.lookAtRules(command.Context(), timeout)
		if err := d.lookAtStore(command.Context(), timeout); err != nil {
			return err
		}
		return d.report(p, *asJSON)
	}
	return command
}

// report prints the findings, and exits with the worst.
func (d *doctor) report(p process, asJSON bool) error {
	worst := 0
	rows := [][]string{{"STATUS", "CHECK", "SERVER", "FOUND", "CHANGE"}}
	for _, f := range d.findings {
		worst = max(worst, findingCodes[f.Status])
		rows = append(rows, []string{f.Status, f.Check, cmp.Or(f.Server, "-"), f.Found, cmp.Or(f.Change, "-")})
	}
	var err error
	if asJSON {
		err = sayJSON(p.Out, d.findings, "")
	} else {
		err = sayTable(p.Out, rows)
	}
	if err != nil || worst == 0 {
		return err
	}
	return exit{code: worst}
}

// lookAtConfiguration looks at what no single setting can tell to be wrong.
func (d *doctor) lookAtConfiguration() {
	c := d.config
	d.ok("configuration", "", "every setting is known and in range")
	if len(c.ClientIP.TrustedProxies) == 0 && (cmp.Or(c.Identity.User, c.Identity.APIKey) != "" ||
		len(c.Identity.Attributes) > 0) {
		d.advise("identity", "", "identity names header fields, and no proxy is trusted",
			"name the proxy in trusted_proxies: the fields are believed from there only, "+
				"so nobody has a user or an attribute now")
	}
	if c.Store.Memory() {
		d.ok("store", "", "memory://: each process decides alone, and forgets all when it ends")
	}
}

// lookAtRules reads the rules where the service would.
func (d *doctor) lookAtRules(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	source, err := openRules(d.config, nil, nil)
	if err != nil {
		d.wrong("rules", "", prefix.Trim(err.Error()), "correct the rules: the service does not start")
		return
	}
	defer source.close()
	set, err := source.Set(ctx)
	switch {
	case errors.Is(err, stint.ErrInvalid):
		d.wrong("rules", "", prefix.Trim(err.Error()), "correct "+source.place+": they are not put in force")
	case refusesUser(err):
		d.wrong("rules", "", document.Redact(prefix.Trim(err.Error())), "give the user the rights of docs/redis.md")
	case err != nil:
		d.unreachable("rules", "", document.Redact(prefix.Trim(err.Error())), "see that "+source.place+" can be reached")
	default:
		d.ok("rules", "", counted(set.Len(), "rule")+" in "+source.place)
		for _, rule := range set.Rules() {
			for _, warning := range set.Warnings(rule.ID, d.config.Store.Clustered()) {
				switch found := "rule " + rule.ID + ": " + warning.Detail; {
				case warning.Errors:
					d.wrong("partitions", "", found, warning.Change)
				case warning.Mistake:
					d.wrong("rules", "", found, "correct the rule; it is in force as it is")
				}
			}
		}
	}
}

// lookAtStore asks the servers, and decides by them. A server that can't be reached ends this part:
// everything else about it would be a guess.
func (d *doctor) lookAtStore(ctx context.Context, timeout time.Duration) error {
	if d.config.Store.Memory() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	states, err := openBackend(d.config)
	if err != nil {
		return err
	}
	defer states.close()
	if err := states.ping(ctx); err != nil {
		found := prefix.Trim(storeFault(d.config.Store, err).Error())
		if refusesUser(err) {
			d.wrong("store", "", found, "correct the user and the password")
		} else {
			d.unreachable("store", "", found, "see that the server runs, and that its address is right")
		}
		return nil
	}
	for _, server := range states.servers(ctx) {
		d.lookAtServer(ctx, server)
	}
	d.lookAtRights(ctx, states)
	return nil
}

// refusesUser reports whether a server answered that the user may not do that, or is not known.
func refusesUser(err error) bool {
	reply, replied := redisstore.Reply(err)
	word, _, _ := strings.Cut(reply, " ")
	return replied && slices.Contains([]string{"NOPERM", "NOAUTH", "WRONGPASS"}, word)
}

// lookAtServer asks one server. A user whose rights end at what the service needs can't ask for
// everything; what is not allowed is told as unknown, not as wrong.
func (d *doctor) lookAtServer(ctx context.Context, server redisstore.Server) {
	info, err := server.Info(ctx)
	if err != nil {
		d.unknown("version", server.Name, "INFO is not allowed to this user")
	} else {
		d.lookAtVersion(server.Name, info)
	}
	d.lookAtTime(ctx, server)
	for _, s := range redisSettings {
		if strings.HasPrefix(s.name, "cluster-") && !d.config.Store.Clustered() {
			continue
		}
		value, err := server.Ask(ctx, "CONFIG", "GET", s.name)
		switch {
		case err != nil || len(value) < 2:
			d.unknown(s.name, server.Name, "the server does not say (CONFIG GET)")
		case s.well(value[1]):
			d.ok(s.name, server.Name, value[1])
		default:
			d.advise(s.name, server.Name, cmp.Or(value[1], `""`), s.name+" "+s.want+": "+s.why)
		}
	}
}

// lookAtVersion: Redis 6.2 and Valkey 7.2 are the first ones that are known to do.
func (d *doctor) lookAtVersion(name string, info map[string]string) {
	kind, version, least := "Redis", info["redis_version"], []int{6, 2}
	if valkey := info["valkey_version"]; valkey != "" {
		kind, version, least = "Valkey", valkey, []int{7, 2}
	}
	var numbers []int
	for part := range strings.SplitSeq(version, ".") {
		number, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		numbers = append(numbers, number)
	}
	found := kind + " " + version + ", " + cmp.Or(info["role"], "of an unknown role")
	if slices.Compare(numbers, least) < 0 {
		d.wrong("version", name, found, fmt.Sprintf("%s %d.%d or later", kind, least[0], least[1]))
		return
	}
	d.ok("version", name, found)
}

// The clock may differ by so much, and a round trip may take so much of the store's timeout, before
// the doctor speaks.
const (
	clockTolerance = time.Second
	tripsTimed     = 9
	tripShare      = 4
)

// lookAtTime measures round trips, and by the shortest of them how far the server's clock is from
// this machine's. The server read its clock somewhere within the trip, so that the offset is off by
// half of a trip at most: the shortest says it best.
func (d *doctor) lookAtTime(ctx context.Context, server redisstore.Server) {
	var trips []time.Duration
	var offset time.Duration
	for range tripsTimed {
		asked := time.Now()
		reply, err := server.Ask(ctx, "TIME")
		trip := time.Since(asked)
		if err != nil || len(reply) != 2 {
			d.unknown("clock", server.Name, "TIME is not allowed to this user")
			return
		}
		seconds, _ := strconv.ParseInt(reply[0], 10, 64)
		micros, _ := strconv.ParseInt(reply[1], 10, 64)
		if len(trips) == 0 || trip < slices.Min(trips) {
			offset = time.Unix(seconds, micros*1000).Sub(asked.Add(trip / 2))
		}
		trips = append(trips, trip)
	}
	slices.Sort(trips)
	found := "differs from this machine's by " + offset.Round(time.Millisecond).String()
	if offset.Abs()-trips[0]/2 > clockTolerance {
		d.advise("clock", server.Name, found,
			"keep the clocks by NTP: limits go by the server's, so resets that clients are told are off by that")
	} else {
		d.ok("clock", server.Name, found)
	}
	median, longest := trips[len(trips)/2], trips[len(trips)-1].Round(time.Microsecond)
	found = fmt.Sprintf("%v, the longest of %d %v", median.Round(time.Microsecond), len(trips), longest)
	if timeout := d.config.Store.Timeout; median > timeout/tripShare {
		d.advise("round trip", server.Name, found,
			fmt.Sprintf("a store.timeout above %v (it is %v), or a nearer server: what takes longer is on_store_failure's",
				tripShare*median.Round(time.Microsecond), timeout))
		return
	}
	d.ok("round trip", server.Name, found)
}

// A redisSetting is one of docs/redis.conf that matters, with what is wrong without it.
type redisSetting struct {
	name, want, why string
	well            func(value string) bool
}

var redisSettings = []redisSetting{
	{
		"maxmemory-policy", "noeviction", "every other policy drops many clients at once, who may use their limits again",
		is("noeviction"),
	},
	{"maxmemory", "2gb", "without a bound the server takes all memory, and is killed; leave room", isNot("0")},
	{"appendonly", "yes", "without the file a restart forgets all limits, and rules that the store keeps", is("yes")},
	{"appendfsync", "everysec", "no leaves it to the system when a crash loses admissions", isNot("no")},
	{"lazyfree-lazy-expire", "yes", "a large key that expires stops the server for a moment", is("yes")},
	{"lazyfree-lazy-eviction", "yes", "freeing a large key stops the server for a moment", is("yes")},
	{"lazyfree-lazy-server-del", "yes", "overwriting a large key stops the server for a moment", is("yes")},
	{"lazyfree-lazy-user-del", "yes", "deleting a large key stops the server for a moment", is("yes")},
	{"lazyfree-lazy-user-flush", "yes", "emptying the server stops it for long", is("yes")},
	{"save", `""`, "snapshots add nothing to the append-only file, and copy the memory", is("", `""`)},
	{"timeout", "0", "idle connections are closed, and the next decision waits for a new one", is("0")},
	{
		"cluster-require-full-coverage", "no",
		"when one primary is gone, the others decide nothing for their clients either", is("no"),
	},
}

// is reports of a value whether it is one of those that are well.
func is(well ...string) func(string) bool {
	return func(value string) bool { return slices.Contains(well, value) }
}

// isNot is for a setting of which only one value is unwise.
func isNot(unwise string) func(string) bool {
	return func(value string) bool { return value != unwise }
}

// lookAtRights decides by each algorithm, as the service would, so that a command that the user may
// not use is named.
func (d *doctor) lookAtRights(ctx context.Context, states *backend) {
	const key = "doctor"
	for _, limit := range []stint.Limit{
		stint.TokenBucket(1, stint.PerSecond(1)), stint.LeakyBucket(1, stint.PerSecond(1)),
		stint.FixedWindow(1, time.Second), stint.SlidingWindowLog(1, time.Second),
		stint.SlidingWindowCounter(1, time.Second),
	} {
		limiter, err := stint.New(states, "stint doctor", limit)
		if err == nil {
			_, err = limiter.Allow(ctx, key)
		}
		if err == nil {
			err = limiter.Reset(ctx, key)
		}
		if err != nil {
			found := fmt.Sprintf("a decision by %s fails: %s", limit.Algorithm, prefix.Trim(err.Error()))
			d.wrong("rights", "", found, "give the user the rights of docs/redis.md")
			return
		}
	}
	d.ok("rights", "", "decided and reset by all five algorithms")
}
