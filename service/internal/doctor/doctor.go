// Package doctor looks at a configuration, its rules and its store, and says what to change.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/rulesource"
	"github.com/stint-go/stint/service/internal/states"
)

// What a finding comes to.
const (
	// Unknown could not be looked at, for want of a right for example.
	Unknown = "unknown"
	// OK is as it should be.
	OK = "ok"
	// Advice works, and would be better otherwise.
	Advice = "advice"
	// Wrong does not work as it is configured.
	Wrong = "wrong"
	// Unreachable did not answer.
	Unreachable = "unreachable"
)

// leastSentinels are as many as are needed so that one may be missing while more than half agree.
const leastSentinels = 3

// A Finding is one thing that the doctor looked at.
type Finding struct {
	// Status is one of the constants.
	Status string `json:"status"`
	// Check is what was looked at.
	Check string `json:"check"`
	// Server is one of the store's; "": it is about none of them.
	Server string `json:"server,omitempty"`
	// Found is what is there.
	Found string `json:"found"`
	// Change is what the doctor would change, and why; "" is nothing.
	Change string `json:"change,omitempty"`
}

// A doctor looks at a configuration and its store. It changes nothing but a key of its own, which
// soon expires.
type doctor struct {
	config   config.Config
	findings []Finding
}

// Look looks at a configuration, its rules and its store, and waits as long as the timeout for each of the two. The
// error is a fault of the configuration by which the store can't be opened.
func Look(ctx context.Context, c config.Config, timeout time.Duration) ([]Finding, error) {
	d := &doctor{config: c}
	d.lookAtConfiguration()
	d.lookAtRules(ctx, timeout)
	err := d.lookAtStore(ctx, timeout)
	return d.findings, err
}

// note notes a finding.
func (d *doctor) note(status, check, server, found, change string) {
	d.findings = append(d.findings, Finding{status, check, server, found, change})
}

// lookAtConfiguration looks at what no single setting can tell to be wrong.
func (d *doctor) lookAtConfiguration() {
	c := d.config
	d.note(OK, "configuration", "", "every setting is known and in range", "")
	if len(c.ClientIP.TrustedProxies) == 0 && (cmp.Or(c.Identity.User, c.Identity.APIKey) != "" ||
		len(c.Identity.Attributes) > 0) {
		d.note(Advice, "identity", "", "identity names header fields, and no proxy is trusted",
			"name the proxy in trusted_proxies: the fields are believed from there only, "+
				"so nobody has a user or an attribute now")
	}
	if c.Store.Memory() {
		d.note(OK, "store", "", "memory://: each process decides alone, and forgets all when it ends", "")
	}
}

// lookAtRules reads the rules where the service would.
func (d *doctor) lookAtRules(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	source, err := rulesource.Open(d.config, nil, nil)
	if err != nil {
		d.note(Wrong, "rules", "", document.Redact(prefix.Trim(err.Error())), "correct the rules: the service does not start")
		return
	}
	defer source.Close()
	set, err := source.Set(ctx)
	switch {
	case errors.Is(err, stint.ErrInvalid):
		d.note(Wrong, "rules", "", prefix.Trim(err.Error()), "correct "+source.Place+": they are not put in force")
	case refusesUser(err):
		d.note(Wrong, "rules", "", document.Redact(prefix.Trim(err.Error())), "give the user the rights of docs/redis.md")
	case err != nil:
		d.note(Unreachable, "rules", "", document.Redact(prefix.Trim(err.Error())),
			"see that "+source.Place+" can be reached")
	default:
		counted := "1 rule"
		if set.Len() != 1 {
			counted = fmt.Sprintf("%d rules", set.Len())
		}
		d.note(OK, "rules", "", counted+" in "+source.Place, "")
		for _, rule := range set.Rules() {
			for _, warning := range set.Warnings(rule.ID, d.config.Store.Clustered()) {
				switch found := "rule " + rule.ID + ": " + warning.Detail; {
				case warning.Errors:
					d.note(Wrong, "partitions", "", found, warning.Change)
				case warning.Mistake:
					d.note(Wrong, "rules", "", found, "correct the rule; it is in force as it is")
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
	opened, err := states.Open(d.config)
	if err != nil {
		return err
	}
	defer opened.Close()
	if opened.Sentinels != nil {
		name, sentinels := opened.Sentinels()
		d.lookAtSentinels(ctx, name, sentinels)
	}
	if err := opened.Ping(ctx); err != nil {
		found := prefix.Trim(states.Unreachable(d.config.Store, err).Error())
		if refusesUser(err) {
			d.note(Wrong, "store", "", found, "correct the user and the password")
		} else {
			d.note(Unreachable, "store", "", found, "see that the server runs, and that its address is right")
		}
		return nil
	}
	for _, server := range opened.Servers(ctx) {
		d.lookAtServer(ctx, server)
	}
	d.lookAtRights(ctx, opened)
	return nil
}

// refusesUser reports whether a server answered that the user may not do that, or is not known.
func refusesUser(err error) bool {
	reply, replied := redisconn.Reply(err)
	word, _, _ := strings.Cut(reply, " ")
	return replied && slices.Contains([]string{"NOPERM", "NOAUTH", "WRONGPASS"}, word)
}

// lookAtServer asks one server. A user whose rights end at what the service needs can't ask for
// everything; what is not allowed is told as unknown, not as wrong.
func (d *doctor) lookAtServer(ctx context.Context, server redisconn.Server) {
	info, err := server.Info(ctx)
	if err != nil {
		d.note(Unknown, "version", server.Name, "INFO is not allowed to this user", "")
	} else {
		d.lookAtVersion(server.Name, info)
		d.lookAtReplicas(ctx, server, info)
		d.lookAtRegions(ctx, server)
	}
	d.lookAtTime(ctx, server)
	for _, s := range redisSettings {
		if strings.HasPrefix(s.name, "cluster-") && !d.config.Store.Clustered() {
			continue
		}
		value, told := setting(ctx, server, s.name)
		switch {
		case !told:
			d.note(Unknown, s.name, server.Name, untold, "")
		case s.well(value):
			d.note(OK, s.name, server.Name, value, "")
		default:
			d.note(Advice, s.name, server.Name, cmp.Or(value, `""`), s.name+" "+s.want+": "+s.why)
		}
	}
}

// untold is found where a user may not ask for a setting.
const untold = "the server does not say (CONFIG GET)"

// setting asks a server for one of its settings. It is not told to a user without the right.
func setting(ctx context.Context, server redisconn.Server, name string) (value string, told bool) {
	all, err := server.Fields(ctx, "CONFIG", "GET", name)
	value, told = all[name]
	return value, told && err == nil
}

// lookAtSentinels asks each sentinel that the configuration names what it knows. Those that answer nothing are told of
// one by one: the others may still be enough.
func (d *doctor) lookAtSentinels(ctx context.Context, name string, sentinels []redisconn.Server) {
	primaries := map[string]bool{}
	for _, sentinel := range sentinels {
		known, err := sentinel.Fields(ctx, "SENTINEL", "MASTER", name)
		if err != nil {
			d.note(Unreachable, "sentinel", sentinel.Name, document.Redact(prefix.Trim(err.Error())),
				"see that it runs, and that it knows a primary of the name "+name)
			continue
		}
		primary := net.JoinHostPort(known["ip"], known["port"])
		primaries[primary] = true
		quorum, _ := strconv.Atoi(known["quorum"])
		others, _ := strconv.Atoi(known["num-other-sentinels"])
		all := others + 1
		found := fmt.Sprintf("%s is the primary; replicas %s, sentinels %d, quorum %d",
			primary, known["num-slaves"], all, quorum)
		status, change := Advice, ""
		switch {
		case strings.Contains(known["flags"], "down"):
			status, found, change = Wrong, found+"; it holds the primary for down", "see that it can reach the primary"
		case quorum > all:
			status = Wrong
			change = fmt.Sprintf("a quorum of %d: so many must agree before a replica takes over", all/2+1)
		case all < leastSentinels:
			change = "three sentinels: with fewer none may be missing when a replica has to take over"
		case all != len(sentinels):
			change = fmt.Sprintf("all of them in store.url, which has %d: more than half must name the primary", len(sentinels))
		case known["num-slaves"] == "0":
			change = "a replica: without one nothing can take over"
		default:
			status = OK
		}
		d.note(status, "sentinel", sentinel.Name, found, change)
	}
	if len(primaries) > 1 {
		all := strings.Join(slices.Sorted(maps.Keys(primaries)), ", ")
		d.note(Wrong, "sentinels", "", "they name different primaries: "+all,
			"wait until a failover is over, or see that all of them can reach each other")
	}
}

// lookAtReplicas looks at a primary that has replicas, or is to have some.
func (d *doctor) lookAtReplicas(ctx context.Context, server redisconn.Server, info map[string]string) {
	replicas, err := strconv.Atoi(info["connected_slaves"])
	if err != nil || info["role"] != "master" {
		return // what else it is, its version tells
	}
	const check = "min-replicas-to-write"
	value, told := setting(ctx, server, check)
	if !told {
		d.note(Unknown, check, server.Name, fmt.Sprintf("replicas %d; %s", replicas, untold), "")
		return
	}
	least, _ := strconv.Atoi(value)
	status, change := Advice, ""
	switch {
	case least > replicas:
		status, change = Wrong, "as many replicas: with fewer the server refuses to write, and every decision fails"
	case replicas == 0 && d.config.Store.Clustered():
		change = "a replica of each primary: without one nothing decides for its clients while it is gone"
	case replicas == 0:
		return
	case replicas > 1 && least == 0:
		change = check + " 1: a primary that is cut off from its replicas admits what the next one knows nothing of"
	case least == replicas:
		change = fmt.Sprintf("%s %d, or one replica more: when one is gone the server refuses to write", check, least-1)
	default:
		status = OK
	}
	d.note(status, check, server.Name, fmt.Sprintf("%d; replicas %d", least, replicas), change)
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
		d.note(Wrong, "version", name, found, fmt.Sprintf("%s %d.%d or later", kind, least[0], least[1]))
		return
	}
	d.note(OK, "version", name, found, "")
}

// lookAtRegions looks whether other regions write to the same database: Redis Enterprise's Active-Active, whose INFO
// has a section of its own. It merges counters, but a client's state is a field of a hash.
func (d *doctor) lookAtRegions(ctx context.Context, server redisconn.Server) {
	if info, err := server.Info(ctx, "crdt"); err == nil && info["crdt_config_version"] != "" {
		d.note(Wrong, "active-active", server.Name,
			"of what two regions write to a client's state the last write wins, and what the other has charged is lost",
			"a database that one region alone writes to")
	}
}

// The doctor speaks if the server's clock is further away than clockTolerance, or if the median of
// tripsTimed round trips is above 1/tripShare of the store's timeout: then a busy moment makes
// decisions degraded.
const (
	clockTolerance = time.Second
	tripsTimed     = 9
	tripShare      = 4
)

// lookAtTime measures round trips, and by the shortest of them how far the server's clock is from
// this machine's. The server read its clock somewhere within the trip, so that the offset is off by
// half of a trip at most: the shortest says it best.
func (d *doctor) lookAtTime(ctx context.Context, server redisconn.Server) {
	var trips []time.Duration
	var offset time.Duration
	for range tripsTimed {
		asked := time.Now()
		reply, err := server.Ask(ctx, "TIME")
		trip := time.Since(asked)
		if err != nil || len(reply) != 2 {
			d.note(Unknown, "clock", server.Name, "TIME is not allowed to this user", "")
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
		d.note(Advice, "clock", server.Name, found,
			"keep the clocks by NTP: limits go by the server's, so resets that clients are told are off by that")
	} else {
		d.note(OK, "clock", server.Name, found, "")
	}
	median, longest := trips[len(trips)/2], trips[len(trips)-1].Round(time.Microsecond)
	found = fmt.Sprintf("%v, the longest of %d %v", median.Round(time.Microsecond), len(trips), longest)
	if timeout := d.config.Store.Timeout; median > timeout/tripShare {
		d.note(Advice, "round trip", server.Name, found,
			fmt.Sprintf("a store.timeout above %v (it is %v), or a nearer server: what takes longer is on_store_failure's",
				tripShare*median.Round(time.Microsecond), timeout))
		return
	}
	d.note(OK, "round trip", server.Name, found, "")
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
func (d *doctor) lookAtRights(ctx context.Context, store stint.Store) {
	const key = "doctor"
	for _, limit := range []stint.Limit{
		stint.TokenBucket(1, stint.PerSecond(1)), stint.LeakyBucket(1, stint.PerSecond(1)),
		stint.FixedWindow(1, time.Second), stint.SlidingWindowLog(1, time.Second),
		stint.SlidingWindowCounter(1, time.Second),
	} {
		limiter, err := stint.New(store, "stint doctor", limit)
		if err == nil {
			_, err = limiter.Allow(ctx, key)
		}
		if err == nil {
			err = limiter.Reset(ctx, key)
		}
		if err != nil {
			found := fmt.Sprintf("a decision by %s fails: %s", limit.Algorithm, prefix.Trim(err.Error()))
			d.note(Wrong, "rights", "", found, "give the user the rights of docs/redis.md")
			return
		}
	}
	d.note(OK, "rights", "", "decided and reset by all five algorithms", "")
}
