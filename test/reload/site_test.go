package reload_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"github.com/stint-go/stint/rules"
)

// A site is what is asked for, and by whom.
type site struct {
	callers  int
	clients  int   // each belongs to one caller
	sections int   // of the paths
	shared   int   // rules that all callers share
	capacity int64 // of each of those
}

// perTenant is how many clients of a caller are of one tenant.
const perTenant = 16

// A request is one with what the model needs to know of it.
type request struct {
	rules.Request
	host     string   // in small letters, without a port
	segments []string // of the path, in its one form
	team     string   // of the path, "" if it has none
}

// A visitor asks for the clients of one caller.
type visitor struct {
	*rand.Rand
	*site
	caller int
	hot    *rand.Zipf
}

func (s *site) visitor(seed uint64, caller int) *visitor {
	rng := rand.New(rand.NewPCG(seed, uint64(caller)+1))
	return &visitor{rng, s, caller, rand.NewZipf(rng, 1.1, 1, uint64(s.clients/s.callers-1))}
}

// home is the section of which a client asks for most, so that it meets rules again and again.
func (s *site) home(rank int) int { return rank % s.sections }

// identities are the client's address, user and API key.
func (s *site) identities(caller, rank int) (address, user, key string) {
	n := caller + rank*s.callers
	return fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255), "user-" + strconv.Itoa(n), "key-" + strconv.Itoa(n)
}

func (s *site) tenant(caller, rank int) string {
	return fmt.Sprintf("tenant-%d-%d", caller, rank/perTenant)
}

// lane is the host of a caller's own.
func lane(caller int) string { return fmt.Sprintf("lane%d.example.com", caller) }

// in reports whether chance of so many percent has it.
func in(rng *rand.Rand, percent int) bool { return rng.IntN(100) < percent }

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// request draws one: half of them of few clients.
func (v *visitor) request() *request {
	rank := int(v.hot.Uint64())
	if in(v.Rand, 50) {
		rank = v.IntN(v.clients / v.callers)
	}
	r := &request{host: pick(v.Rand, "", "api.example.com", "api.example.com", "api.example.org", lane(v.caller))}
	address, user, key := v.identities(v.caller, rank)
	r.Method = pick(v.Rand, http.MethodGet, http.MethodGet, http.MethodPost, http.MethodPut)
	r.Address = address
	r.Attributes = map[string]string{"tenant": v.tenant(v.caller, rank)}
	r.Header = http.Header{}
	if in(v.Rand, 85) {
		r.User = user
	}
	if in(v.Rand, 80) {
		r.APIKey = key
	}
	if in(v.Rand, 20) {
		delete(r.Attributes, "tenant")
	}
	if in(v.Rand, 25) {
		r.Attributes["size"] = strconv.Itoa(1 + v.IntN(3))
	}
	if in(v.Rand, 60) {
		r.Header["X-Plan"] = []string{pick(v.Rand, "free", "paid")}
	}
	if in(v.Rand, 30) {
		r.Header["X-Cost"] = []string{strconv.Itoa(1 + v.IntN(3))}
	}
	v.locate(r, rank)
	return r
}

// locate gives the request its path, in one of its spellings.
func (v *visitor) locate(r *request, rank int) {
	section := "s" + strconv.Itoa(v.home(rank))
	number := strconv.Itoa(v.IntN(1000))
	switch v.IntN(12) {
	case 0:
		r.segments = []string{"shared", strconv.Itoa(v.IntN(v.shared))}
	case 1, 2, 3:
		r.segments = []string{section, "items", number}
	case 4, 5:
		r.segments = []string{section, "items"}
	case 6, 7, 8:
		r.team = fmt.Sprintf("team-%d-%d", v.caller, rank%100)
		r.segments = []string{section, "teams", r.team, "docs", number}
	case 9, 10:
		r.segments = []string{section, "files", "a", number, "c"}
	default:
		r.segments = []string{section, "search"}
	}
	r.Path = "/" + strings.Join(r.segments, "/")
	r.Host = r.host
	switch v.IntN(20) {
	case 0:
		r.Path += "/"
	case 1:
		r.Path = "//." + strings.Replace(r.Path, "/s", "/%73", 1) + "?x=/y"
	case 2:
		if r.Host != "" {
			r.Host = strings.ToUpper(r.Host) + ":8443"
		}
	}
}
