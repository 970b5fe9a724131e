package rules

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// A Rule says which requests it holds for, whom it counts, and what each may do. It is
// plain data; [Compile] checks it. The zero value lacks an ID and limits. The tags say how a document
// gives it, as package document reads them.
type Rule struct {
	// ID is the rule's name, 1 to 96 letters, digits or any of - _ . : and not . or .. alone,
	// unique in its set. The states of the rule's clients belong to it.
	ID string `doc:"id"`
	// Name is what people call the rule, up to 128 bytes. Default: "", none.
	Name string `doc:"name"`
	// Set is a group of rules that people and their tools select by, up to 128 bytes. Default: "",
	// none.
	Set string `doc:"set"`
	// Disabled rules are checked like others, and hold for no request.
	Disabled bool `doc:"enabled" is:"one-of true false"`
	// Priority orders the rules that match: the highest first, and by ID where it is the same. It
	// decides which of several is named as the deciding rule when their answers are alike, and never
	// stops a rule. Default: 0. So two rules never stand in an order by chance: the same requests name
	// the same rule on all processes.
	Priority int `doc:"priority"`
	// Labels are for people and their tools. Default: none.
	Labels map[string]string `doc:"labels"`
	// Match says which requests the rule holds for. Default: all.
	Match Match `doc:"match"`
	// Scope says what a client is: [Global], [PerIP] or [PerNetwork], [PerUser], [PerAPIKey] or [Custom] with an
	// attribute's name; several are one composite key, and global stands alone. It has no default.
	Scope []string `doc:"scope" one:"scope" is:"scope" each:"scope"`
	// Missing is how requests that lack a part of Scope, or PartitionBy's attribute, are treated. It
	// has no default where the scope has a user, an API key or an attribute, or with PartitionBy;
	// elsewhere it is MissingDeny.
	Missing Missing `doc:"missing"`
	// MissingStatus is the HTTP status of a request that MissingDeny denies: 401, which asks its sender who it is, and
	// is UNAUTHENTICATED in gRPC. Default: 0, as other denials: 429.
	MissingStatus int `doc:"missing_status"`
	// Cost is what a request takes. Default: 1.
	Cost Cost `doc:"cost" is:"cost"`
	// Limits are what each client may do, 1 to 64 of them; none with Unlimited and Banned.
	Limits []stint.Limit `doc:"limits" is:"limits"`
	// Costs are what a request takes of each of Limits, in the same order: requests count 1, say, and
	// tokens as many as there are. A zero Cost stands for the rule's. Default: nil, all take the
	// rule's.
	Costs []Cost
	// Unlimited rules match and limit nobody but those with an override.
	Unlimited bool `doc:"unlimited"`
	// Banned rules deny every request that they match, except of clients with an override.
	Banned bool `doc:"banned"`
	// OnExceed is how a request that the limits deny is treated. Default: Reject.
	OnExceed OnExceed `doc:"on_exceed" is:"one-of reject wait shadow mark"`
	// MarkAt marks a request that is admitted, and leaves a client of a limit of the rule only so much that this part of
	// it, or more, is used: 1 to 100 percent. Default: 0, none.
	MarkAt Percent `doc:"mark_at" is:"percent 1 100"`
	// Block is a pause after too many denials. Default: none. Not with Unlimited, Banned, Within, Otherwise, Mark,
	// Reserve, nor limits of concurrency or with leases.
	Block Block `doc:"block"`
	// MaxWait bounds how long a request is held: 1ms to 5m. With Wait only, where it
	// has no default.
	MaxWait time.Duration `doc:"max_wait" is:"duration 1ms 5m"`
	// MaxWaiters bounds how many requests of one client are held at once, 1 to 10,000; the next one is
	// denied. With Wait only. Default: 0, which is 100. It bounds what a client can make the process
	// keep, for one rule.
	MaxWaiters int `doc:"max_waiters" is:"integer 1 10000"`
	// OnStoreFailure is the failure policy while the store is unreachable. Default: "", that of the service. The service
	// does what it says; a program's store does if it is one of package failover, whose
	// Config.ForPolicy asks [FailureOf].
	OnStoreFailure OnStoreFailure `doc:"on_store_failure" is:"one-of open closed local"`
	// Timeout bounds each call of the store, 1ms to 1m, under the same conditions. Default: 0, as for
	// all.
	Timeout time.Duration `doc:"timeout" is:"duration 1ms 1m"`
	// PartitionBy names an attribute by whose value a request's claims are placed in a cluster: those of
	// all rules that have it are then decided, and held, in one partition. The key is the value in braces
	// and the client's; the same client under another value has another state. A request without the
	// attribute is treated as Missing says. Default: "", by the client.
	PartitionBy string `doc:"partition_by"`
	// Reserve says how a request's permits are held by package enforce's Reserve. Default: as
	// stint.Hold's. It only matters to those who reserve; requests that are decided and taken at once
	// do not hold.
	Reserve Reserve `doc:"reserve"`
	// Count says which requests the rule counts, by their answers. Default: all.
	Count Count `doc:"count" is:"count"`
	// Within is the ID of a rule within whose limit, a token bucket, this rule's clients have floors:
	// Guaranteed or Weights, and beside them what they Borrow. It has no limits of its own then. A request
	// that both rules match is decided by this one, and charged to both; one that only the other matches
	// leaves what the floors need. Default: "", none.
	Within string `doc:"within"`
	// Guaranteed are the floors of clients, by their keys as overrides have them, without networks. Others
	// have none. Where the scope begins with that of the rule in Within, all keys may leave those parts
	// out: then each client of that rule has these floors. Together they have at most the capacity and the
	// refill of the limit that they are within; within a rule that has floors itself, those of its smallest
	// one. With Within only.
	Guaranteed map[string]Floor `doc:"guaranteed" of:"names, of which each has a mapping"`
	// Weights share out nine tenths of the capacity and all of the refill among these clients, in place of Guaranteed: a
	// client has so many parts of their sum.
	Weights map[string]int64 `doc:"weights" of:"clients to weights, such as search: 3" each:"integer 1 1000000000"`
	// Borrow is what clients may use beyond their floors, as long as no floor needs it. With Within only.
	// Default: nothing.
	Borrow Borrow `doc:"borrow" is:"borrow"`
	// MaxCost is the largest cost that requests may name, 1 to 1,000,000,000; a larger one is an error.
	// With Borrow it has to fit beside the floors. It is for a Cost that requests name. Default: 0, which
	// is no bound, and not allowed with Borrow.
	MaxCost int64 `doc:"max_cost" is:"integer 1 1000000000"`
	// Otherwise is the ID of a rule whose limits are charged, for its own client, when this rule's deny: a quota that is
	// included, say, and what is paid beyond it. That rule does not hold by itself for requests that this one matches.
	// Default: "", none.
	Otherwise string `doc:"otherwise"`
	// Classes are classes of requests, of which each leaves a part of every limit to the more important
	// ones. Default: none.
	Classes Classes `doc:"classes"`
	// Overrides are clients with limits of their own. Default: none.
	Overrides []Override `doc:"overrides" of:"overrides"`
}

// A Reserve says how permits are held until it is known what a request cost. Of several rules that hold
// for a request, the longest TTL counts, and Keep if any has it.
type Reserve struct {
	// TTL is for how long, if nobody renews, commits or cancels: 1s to 1h. Default: 0,
	// 1m.
	TTL time.Duration `doc:"ttl" is:"duration 1s 1h"`
	// OnExpiry is what becomes of them then. Default: "", Release.
	OnExpiry OnExpiry `doc:"on_expiry" is:"one-of release keep"`
}

// OnExpiry says what becomes of what is held when it expires; "" is Release.
type OnExpiry string

// What may become of it.
const (
	// Release gives it back.
	Release OnExpiry = "release"
	// Keep charges it.
	Keep OnExpiry = "keep"
)

// A Match says which requests a rule holds for; all that is given has to apply. The zero
// value matches every request.
type Match struct {
	// Methods are such as GET; compared as they are written, and standard ones are in upper case. GET stands for HEAD as
	// well, which asks the same without the body. Default: none, which is any.
	Methods []string `doc:"methods" is:"texts methods such as GET"`
	// Paths are patterns such as /users/{id}/posts, of which one has to match: a segment in braces or * stands
	// for any one segment, and /** at the end for any number of them, none included. A parameter that Scope
	// names must be in all of them. At most 64. Default: none, any path.
	Paths []string `doc:"paths" one:"path" is:"texts a pattern such as /users/{id}"`
	// Except are patterns of paths that the rule does not hold for. A path with several variants is excepted only if
	// each variant that Paths match is. A path with ; or, once it is decoded, with % is never excepted, as
	// programs differ in what they make of it. At most 64. Default: none.
	Except []string `doc:"except" is:"texts patterns such as /health or /static/**"`
	// Hosts are names such as api.example.com, or *.example.com for all names below one, of which one has to
	// match; letter case and port do not matter. At most 64. Default: none, any host.
	Hosts []string `doc:"hosts" one:"host" is:"texts a name such as api.example.com or *.example.com"`
	// Headers are fields that must be there, with exactly this value or, when it is *, with
	// any. Default: none.
	Headers map[string]string `doc:"headers"`
	// Attributes are facts about the request that must be there, each with one of these values or, when * is among them,
	// with any: what the program knows for certain, such as a plan or a tenant. A header field, which a client may forge,
	// is never one. Default: none.
	Attributes map[string][]string `doc:"attributes" of:"attributes to a value or a list of values" each:"values"`
}

// allows reports whether the method is among those that are listed. HEAD is wherever GET is:
// routers have it answered by GET's handler (RFC 9110, section 9.3.2), at the same cost.
func (m *Match) allows(method string) bool {
	return slices.Contains(m.Methods, method) || method == http.MethodHead && slices.Contains(m.Methods, http.MethodGet)
}

// The scopes.
const (
	// Global counts all requests together.
	Global = "global"
	// PerIP counts each client address.
	PerIP = "per_ip"
	// PerUser counts each user.
	PerUser = "per_user"
	// PerAPIKey counts each API key.
	PerAPIKey = "per_api_key" //nolint:gosec // the name of a scope, not a key
	// CustomPrefix begins a scope that counts each value of an attribute, whose name follows: one
	// that the request has, or a parameter in braces of the rule's paths.
	CustomPrefix = "custom:"
)

// Custom is the scope that counts each value of an attribute.
func Custom(attribute string) string { return CustomPrefix + attribute }

// Missing says how a request that lacks a part of a rule's scope is treated. The zero
// value is not a choice.
type Missing uint8

// What may become of such a request.
const (
	// MissingUnset is no choice.
	MissingUnset Missing = iota
	// MissingSkip lets the rule not hold for the request.
	MissingSkip
	// MissingDeny denies the request.
	MissingDeny
	// MissingIP counts the request by its client address, apart from those that lack
	// nothing. One that has no address either is denied.
	MissingIP
)

// OnExceed says how a request that a rule's limits deny is treated. The zero value is Reject.
type OnExceed uint8

// What may become of such a request.
const (
	// Reject denies it.
	Reject OnExceed = iota
	// Wait holds it until the limits admit it, at most the rule's MaxWait, in the order of arrival.
	Wait
	// Shadow admits it, and tells that the rule would have denied.
	Shadow
	// Mark admits it as well, and tells its caller: the limits are charged if the request fits them and everything else
	// admits it, else they take nothing of it.
	Mark
)

// OnStoreFailure says what decides by a rule while the store is unreachable: "open", "closed" or
// "local"; "" is as for all.
type OnStoreFailure string

// The failure policies.
const (
	FailOpen   OnStoreFailure = "open"
	FailClosed OnStoreFailure = "closed"
	FailLocal  OnStoreFailure = "local"
)

// A Cost says what a request takes. The zero value is 1 permit.
type Cost struct {
	// Header names a header field that holds the cost, an integer of at least 1. A request
	// with anything else in it is invalid. Default: "", none.
	Header string `doc:"header"`
	// Attribute names an attribute that holds it, in place of Header. Default: "", none.
	Attribute string `doc:"attribute"`
	// Permits is the cost, 1 to 1,000,000,000; with Header or Attribute the cost of a
	// request that has none. Default: 0, which is 1.
	Permits int64 `doc:"default" is:"integer 1 1000000000"`
	// Sum are parts of which the cost is the sum, rounded up once, and at least 1; in place of the others. At most 8.
	// Default: none.
	Sum []CostPart `doc:"sum" of:"parts"`
}

// A CostPart is what a header field or an attribute holds, an integer from 0 to 1,000,000,000, times a weight.
type CostPart struct {
	// Header and Attribute are as those of [Cost]; one of them.
	Header    string `doc:"header"`
	Attribute string `doc:"attribute"`
	// Weight is how many permits the value 1 stands for. Default: 0, which is 1000 thousandths.
	Weight Thousandths `doc:"weight" is:"thousandths"`
	// Default is the value of a request without one, 0 to 1,000,000,000.
	Default int64 `doc:"default" is:"integer 0 1000000000"`
}

// Thousandths are a number from 0.001 to 1,000,000, as 1 to 1,000,000,000.
type Thousandths int64

// oneWhole is the number 1.
const oneWhole Thousandths = 1000

// inWhole is a number of thousandths, rounded up to a whole number.
func inWhole(n int64) int64 { return (n + int64(oneWhole) - 1) / int64(oneWhole) }

// String writes the number with as few digits as it needs.
func (n Thousandths) String() string {
	text := strings.TrimRight(fmt.Sprintf("%d.%03d", n/oneWhole, n%oneWhole), "0")
	return strings.TrimSuffix(text, ".")
}

// named reports whether requests may name the cost.
func (c *Cost) named() bool { return c.Header != "" || c.Attribute != "" || len(c.Sum) > 0 }

// isZero reports whether nothing is said about the cost.
func (c *Cost) isZero() bool { return c.Permits == 0 && !c.named() }

// equal reports whether two costs are the same.
func (c Cost) equal(o Cost) bool {
	return c.Header == o.Header && c.Attribute == o.Attribute && c.Permits == o.Permits && slices.Equal(c.Sum, o.Sum)
}

// An Override is what holds for one client of a rule in place of the rule's limits: exactly
// one of Limits, Unlimited and Banned.
type Override struct {
	// Key is the client: the address, the user, the API key, or the attribute's value; * for a global
	// rule. An address is written as clientip.Resolver.KeyOf does: 192.0.2.1, an IPv6 network such as
	// 2001:db8:1:2::/64 of as many bits as [Options] say, or unknown. In its place there may be a
	// network of IPv4 or, with fewer bits, of IPv6: each client in it has limits of its own then. A
	// client's own override comes before those of networks, and the longest of these before others. A
	// composite one's parts are joined by | and one that itself has | or \ is written with a \ before
	// them. In the place of an API key there may be \sha256: and the 64 hexadecimal digits of its
	// SHA-256, so that the key itself is kept nowhere.
	Key string `doc:"key"`
	// Limits are what the client may do.
	Limits []stint.Limit `doc:"limits" is:"limits"`
	// Costs are as the rule's Costs, of these limits.
	Costs []Cost
	// Unlimited clients are not limited by the rule.
	Unlimited bool `doc:"unlimited"`
	// Banned clients are denied.
	Banned bool `doc:"banned"`
	// Until is when it ends: from then on its client has what it would have without it, and its state goes over as that
	// of a changed limit. [Matches.Now] tells the time. A time of the years 1970 to 2254. Default: the zero time, never.
	Until time.Time `doc:"until" is:"time"`
}

// The names are those of documents; a name's place is the value.
var (
	missingNames  = []string{"", "skip", "deny", "ip"}
	onExceedNames = []string{"reject", "wait", "shadow", "mark"}
)

// String is skip, deny or ip, and nothing for MissingUnset.
func (m Missing) String() string { return nameOf(missingNames, uint8(m)) }

// UnmarshalText reads skip, deny or ip.
func (m *Missing) UnmarshalText(name []byte) error {
	i := slices.Index(missingNames, string(name))
	if i < 1 {
		return stint.Invalid("missing", string(name), "skip, deny or ip")
	}
	*m = Missing(i)
	return nil
}

// String is reject, wait or shadow.
func (o OnExceed) String() string { return nameOf(onExceedNames, uint8(o)) }

// nameOf is a value's name, or unknown for one that no rule can have.
func nameOf(names []string, i uint8) string {
	if int(i) >= len(names) {
		return "unknown"
	}
	return names[i]
}

// Clone is the rule with slices and maps of its own. Who changes a rule that others may read
// changes a clone.
func (r *Rule) Clone() Rule {
	c := *r
	c.Labels = maps.Clone(r.Labels)
	c.Match.Methods = slices.Clone(r.Match.Methods)
	c.Match.Paths, c.Match.Except = slices.Clone(r.Match.Paths), slices.Clone(r.Match.Except)
	c.Match.Hosts = slices.Clone(r.Match.Hosts)
	c.Match.Headers = maps.Clone(r.Match.Headers)
	c.Match.Attributes = maps.Clone(r.Match.Attributes)
	for name, values := range c.Match.Attributes {
		c.Match.Attributes[name] = slices.Clone(values)
	}
	c.Scope, c.Count.Status = slices.Clone(r.Scope), slices.Clone(r.Count.Status)
	c.Limits, c.Costs, c.Cost.Sum = slices.Clone(r.Limits), cloneCosts(r.Costs), slices.Clone(r.Cost.Sum)
	c.Guaranteed, c.Weights, c.Classes.Keep = maps.Clone(r.Guaranteed), maps.Clone(r.Weights), maps.Clone(r.Classes.Keep)
	c.Overrides = slices.Clone(r.Overrides)
	for i := range c.Overrides {
		o := &c.Overrides[i]
		o.Limits, o.Costs = slices.Clone(o.Limits), cloneCosts(o.Costs)
	}
	return c
}

// cloneCosts are costs with slices of their own.
func cloneCosts(costs []Cost) []Cost {
	costs = slices.Clone(costs)
	for i := range costs {
		costs[i].Sum = slices.Clone(costs[i].Sum)
	}
	return costs
}

// Equal reports whether the rules say the same. A list without elements is like none, since what
// reads rules makes either of the other.
func (r *Rule) Equal(o *Rule) bool {
	return r.ID == o.ID && r.Name == o.Name && r.Set == o.Set && r.Disabled == o.Disabled && r.Priority == o.Priority &&
		maps.Equal(r.Labels, o.Labels) && r.Match.same(&o.Match) &&
		slices.Equal(r.Scope, o.Scope) && r.Missing == o.Missing && r.MissingStatus == o.MissingStatus &&
		r.Cost.equal(o.Cost) &&
		slices.Equal(r.Limits, o.Limits) && slices.EqualFunc(r.Costs, o.Costs, Cost.equal) && r.Unlimited == o.Unlimited &&
		r.Banned == o.Banned &&
		r.OnExceed == o.OnExceed && r.MarkAt == o.MarkAt && r.Block == o.Block && r.MaxWait == o.MaxWait &&
		r.MaxWaiters == o.MaxWaiters &&
		r.OnStoreFailure == o.OnStoreFailure && r.Timeout == o.Timeout && r.PartitionBy == o.PartitionBy &&
		r.Reserve == o.Reserve && slices.Equal(r.Count.Status, o.Count.Status) &&
		r.Within == o.Within && maps.Equal(r.Guaranteed, o.Guaranteed) && maps.Equal(r.Weights, o.Weights) &&
		r.Borrow == o.Borrow &&
		r.MaxCost == o.MaxCost && r.Otherwise == o.Otherwise && r.Classes.By == o.Classes.By &&
		r.Classes.Default == o.Classes.Default &&
		maps.Equal(r.Classes.Keep, o.Classes.Keep) &&
		slices.EqualFunc(r.Overrides, o.Overrides, func(a, b Override) bool {
			return a.Key == b.Key && a.Unlimited == b.Unlimited && a.Banned == b.Banned && slices.Equal(a.Limits, b.Limits) &&
				slices.EqualFunc(a.Costs, b.Costs, Cost.equal) && a.Until.Equal(b.Until)
		})
}

// same reports whether two matches say the same, in the same order.
func (m *Match) same(o *Match) bool {
	return slices.Equal(m.Methods, o.Methods) && slices.Equal(m.Paths, o.Paths) && slices.Equal(m.Except, o.Except) &&
		slices.Equal(m.Hosts, o.Hosts) && maps.Equal(m.Headers, o.Headers) &&
		maps.EqualFunc(m.Attributes, o.Attributes, slices.Equal)
}

// A Request is what rules know of a request. Its strings are compared as they are, but for
// Host and Path. The zero value is a request for / that lacks everything.
type Request struct {
	// Method is such as GET.
	Method string
	// Host is the name that was asked for, with or without a port.
	Host string
	// Path is the path as it was sent, percent-encoded; a query is left out of account.
	// Default: "", which is /.
	Path string
	// Header is the request's header, with canonical names. Default: none.
	Header http.Header
	// Address is the client's address as a key, as clientip.Resolver.Key returns it: overrides and
	// resets know clients by address in that form only. A value of another form, such as the name of a
	// network, is an attribute. Default: "", which is none.
	Address string
	// User is the authenticated user. Default: "", unknown.
	User string
	// APIKey is the key that the request showed. Default: "", none.
	APIKey string
	// Attributes are further facts by name. Default: none.
	Attributes map[string]string
	// Set names a set of rules: no others hold for the request. Default: "", the rules of all sets.
	Set string
}

// SetDefault gives the request an attribute, unless it has one of that name. It replaces the map of attributes by a
// copy, since other requests may share it.
func (r *Request) SetDefault(attribute, value string) {
	if _, there := r.Attributes[attribute]; there {
		return
	}
	attributes := map[string]string{attribute: value}
	maps.Copy(attributes, r.Attributes)
	r.Attributes = attributes
}

// FromHTTP describes a request to an HTTP server, without the client.
func FromHTTP(r *http.Request) Request {
	return Request{Method: r.Method, Host: r.Host, Path: sentPath(r.URL), Header: r.Header}
}

// sentPath is the path as it was sent: URL.EscapedPath writes one anew in which a byte should have been encoded, and
// %2F in it becomes a slash, which it is not to a router that reads URL.RawPath.
func sentPath(u *url.URL) string {
	if u.RawPath != "" {
		if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path {
			return u.RawPath
		}
	}
	return u.EscapedPath()
}

// NeedsReserve reports whether one of the rule's own limits is of concurrency, or the rule has a Count, so that only a
// Reserve is decided by it. Overrides may have other limits.
func (r *Rule) NeedsReserve() bool { return hasPlaces(r.Limits) || r.countsAnswers() }
