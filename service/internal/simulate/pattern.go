package simulate

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/rules"
)

// A Pattern is traffic made from a seed: the same in every run.
type Pattern struct {
	// Name is one of [Patterns]. It has no default.
	Name string
	// Seed chooses among all traffic of the pattern. 0 is a seed like others.
	Seed uint64
	// Rate is how many requests there are per second on average; of boundary-burst in a burst; of spike and retry-storm in
	// calm.
	Rate float64
	// Clients is how many clients there are, the heaviest first by Zipf's law with exponent 1.1. 1 to
	// [MaxPatternClients].
	Clients int
	// Length is how long it lasts.
	Length time.Duration
	// Window is what boundary-burst has its boundary of.
	Window time.Duration
	// Client is what clients are called, with a number behind unless there is one: as an address, a user and an API key
	// alike. Default: "", which is client-1 and so on.
	Client string
	// Hold is for how long each request holds what it takes. Default: 0, it takes.
	Hold time.Duration
	// Path is what they ask for, and Method how. Default: "", which is / and GET.
	Path, Method string
	// Burst is how many requests of a client come together, up to [MaxBurst], at the same Rate; of boundary-burst how many
	// each client sends before the boundary and again after it. Default: 0, which is 1, and of boundary-burst as many as
	// Rate says.
	Burst int
}

// Patterns are the names of patterns, in the order of the documentation.
func Patterns() []string {
	return []string{"boundary-burst", "steady", "poisson", "diurnal", "spike", "retry-storm"}
}

// MaxPatternClients is how many clients a pattern may have.
const MaxPatternClients = 1_000_000

// MaxBurst is how many requests of a pattern may come together.
const MaxBurst = 1_000_000

// begin is when patterns begin, 2026-01-01: a multiple of every window that divides a day. The
// windows of a limit begin at multiples of their length since 1970, and so those that a pattern is
// about begin with it.
const begin = stint.Instant(1_767_225_600_000_000)

// Validate reports what is wrong with the pattern.
func (p Pattern) Validate() error {
	switch {
	case !slices.Contains(Patterns(), p.Name):
		return stint.Invalid("pattern", p.Name, "one of "+strings.Join(Patterns(), ", "))
	case !(p.Rate > 0 && p.Rate <= 1e6):
		return stint.Invalid("rate", p.Rate, "above 0, up to 1000000 requests per second")
	case p.Clients < 1 || p.Clients > MaxPatternClients:
		return stint.Invalid("clients", p.Clients, fmt.Sprintf("1 to %d", MaxPatternClients))
	case p.Burst < 0 || p.Burst > MaxBurst:
		return stint.Invalid("burst", p.Burst, fmt.Sprintf("0 to %d", MaxBurst))
	case p.Hold < 0 || p.Hold > bounds.MaxPeriod:
		return stint.Invalid("hold", p.Hold, "0s to 366d")
	case p.Path != "" && !strings.HasPrefix(p.Path, "/"):
		return stint.Invalid("path", p.Path, "a path that begins with /")
	case p.Length < time.Millisecond || p.Length > bounds.MaxPeriod:
		return stint.Invalid("length", p.Length, "1ms to 366d")
	case p.Name == "boundary-burst" && (p.Window < 2*time.Millisecond || p.Window > p.Length/2):
		return stint.Invalid("window", p.Window, "2ms to half the length")
	case p.Method != "":
		return rules.CheckMethod(p.Method)
	}
	return nil
}

// Run makes the pattern's events, in order.
func (p Pattern) Run(add func(*Event) error) error {
	if err := p.Validate(); err != nil {
		return err
	}
	g := generator{Pattern: p, rng: rand.New(rand.NewPCG(p.Seed, 0)), add: add} // #nosec G404 -- must be repeatable
	g.Path, g.Method = cmp.Or(p.Path, "/"), cmp.Or(p.Method, "GET")
	g.weigh()
	if p.Name == "boundary-burst" {
		return g.boundary()
	}
	g.Burst = max(1, p.Burst)
	g.Rate /= float64(g.Burst) // of bursts from now on
	switch p.Name {
	case "retry-storm":
		return g.storm()
	}
	t, end := 0.0, p.Length.Seconds()
	for {
		if p.Name == "steady" {
			t += 1 / g.Rate
		} else {
			t += g.rng.ExpFloat64() / (g.Rate * peakOf[p.Name])
		}
		if t >= end {
			return nil
		}
		if g.keeps(t / end) {
			if err := g.burst(t, g.client()); err != nil {
				return err
			}
		}
	}
}

// peakOf is how far a pattern's rate rises above Pattern.Rate. A Poisson process whose rate changes
// is made by thinning: events come at the peak's rate, and each is kept with the probability
// rate(t) / peak. The rate of diurnal is 1-0.8*cos(2*pi*t/length) times Rate, whose average is Rate;
// that of spike is Rate outside of the spike.
var peakOf = map[string]float64{"poisson": 1, "diurnal": 1.8, "spike": 10}

// keeps thins out what comes at the peak's rate, at a part of the length from 0 to 1.
func (g *generator) keeps(at float64) bool {
	switch g.Name {
	case "diurnal": // lowest at the begin, at night
		return g.rng.Float64()*1.8 < 1-0.8*math.Cos(2*math.Pi*at)
	case "spike": // ten times as many in the middle tenth
		return at >= 0.45 && at < 0.55 || g.rng.Float64()*10 < 1
	default:
		return true
	}
}

// A generator makes the events of a pattern. All chance comes from rng, whose seed is the
// pattern's, so that the same pattern is the same events again. The event is used again for each
// one: who keeps it copies it.
type generator struct {
	Pattern
	rng   *rand.Rand
	add   func(*Event) error
	line  int64
	sums  []float64 // of the clients' weights
	event Event
}

// weigh gives client i the weight i^-1.1: few clients send much, and many send little, as Zipf's
// law has it for real traffic.
func (g *generator) weigh() {
	sum := 0.0
	g.sums = make([]float64, 0, g.Clients)
	for i := range g.Clients {
		sum += math.Pow(float64(i+1), -1.1)
		g.sums = append(g.sums, sum)
	}
}

// client chooses one with the probability of its weight: the first whose sum of weights reaches a
// number drawn from 0 to their total.
func (g *generator) client() int {
	i, _ := slices.BinarySearch(g.sums, g.rng.Float64()*g.sums[len(g.sums)-1])
	return min(i, g.Clients-1)
}

// burst makes the requests of a client that come together.
func (g *generator) burst(t float64, client int) error {
	for range g.Burst {
		if err := g.emit(t, client); err != nil {
			return err
		}
	}
	return nil
}

// name is that of a client.
func (g *generator) name(client int) string {
	switch {
	case g.Client == "":
		return "client-" + strconv.Itoa(client+1)
	case g.Clients == 1:
		return g.Client
	default:
		return g.Client + "-" + strconv.Itoa(client+1)
	}
}

// emit makes a request of a client at so many seconds from the begin.
func (g *generator) emit(t float64, client int) error {
	g.line++
	g.event = Event{Time: begin + stint.Instant(t*1e6), Line: g.line}
	if g.Hold > 0 {
		g.event.Hold = &Hold{For: g.Hold, Actual: -1}
	}
	r := &g.event.Request
	r.Method, r.Path, r.Address = g.Method, g.Path, g.name(client)
	r.User, r.APIKey = r.Address, r.Address
	return g.add(&g.event)
}

// boundary has each client send a burst in the last and in the first twentieth of each other window: Rate requests in
// all, per second of the window.
func (g *generator) boundary() error {
	window := g.Window.Seconds()
	half := cmp.Or(g.Burst, max(1, int(g.Rate*window/2)))
	for edge := window; edge+window <= g.Length.Seconds()+1e-9; edge += 2 * window {
		for _, from := range []float64{edge - window/20, edge} {
			for i := range half {
				for client := range g.Clients {
					if err := g.emit(from+window/20*(float64(i)+0.5)/float64(half), client); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// storm is steady traffic with an outage from a third to two fifths of the length: until its end every request fails
// and is sent again, by clients that retry every second, with up to a tenth more. Then they retry for what they have
// left, ten times each at most.
func (g *generator) storm() error {
	end, t := g.Length.Seconds(), 0.0
	down, up := end/3, end*2/5
	var again upcoming[retry]
	for {
		t += g.rng.ExpFloat64() / g.Rate
		for len(again) > 0 && again[0].at <= min(t, end) {
			r := heap.Pop(&again).(retry)
			if err := g.emit(r.at, r.client); err != nil {
				return err
			}
			if r.at < up && r.left > 0 {
				heap.Push(&again, retry{r.at + 1 + g.rng.Float64()/10, r.client, r.left - 1})
			}
		}
		if t >= end {
			return nil
		}
		client := g.client()
		if err := g.burst(t, client); err != nil {
			return err
		}
		for i := 0; i < g.Burst && t >= down && t < up; i++ {
			heap.Push(&again, retry{t + 1 + g.rng.Float64()/10, client, 9})
		}
	}
}

// A retry is to come.
type retry struct {
	at     float64
	client int
	left   int
}

// Before orders retries.
func (r retry) Before(other retry) bool { return r.at < other.at }
