package server_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/config"
)

// A case is a transcript whose requests are asked in five ways, each of a service or a program of its own: over REST, by
// the Redis protocol, by Envoy's, and of the library by httplimit and by grpclimit. Each answer has to be the same.
//
//	# a comment
//	service                               new ones, by the settings below it: policies, rules, rules_default
//	    rules: [...]
//	not envoy: a limit has no name there  this driver can't run the case, and why
//	evaluate POST /login ip 192.0.2.1     a request to decide by rules, in the words of STINT.EVALUATE
//	check api k 3                         3 permits of the key k by the policy api, in those of STINT.CHECK
//	200 evaluate / attributes.team search so many of them; how many have which answer is told
//	+1.5s                                 the stores' clocks go on
//	store unreachable                     as in other transcripts
//	    denied by login/burst, left 0 of 2, retry 49.5s, reset 49.5s, since limit, matched login
//
// The parts of an answer are the verdict and its rule and limit, or the policy's; what is left; when the same request
// would be admitted; when the limit is full again; the turn of a leaky bucket; the reason of a denial, and what the request
// lacks; the rules that match, that would have denied in shadow and that mark; the class, and by what was charged.
// -rewrite puts the answers of REST in place. A driver compares those parts that its protocol tells, as exactly as it tells them.
func TestCases(t *testing.T) {
	paths, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range paths {
		text := string(must.Get(os.ReadFile(path))(t))
		for _, name := range slices.Sorted(maps.Keys(drivers)) {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txt")+"/"+name, func(t *testing.T) {
				c := &cases{t: t, path: path, name: name, lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
				for c.at < len(c.lines) {
					c.step()
				}
				if *rewrite && name == "rest" {
					must.Do(t, os.WriteFile(path, []byte(strings.Join(c.out, "\n")+"\n"), 0o600))
				}
			})
		}
	}
}

// A driver asks a service or a program in one way.
type driver interface {
	// evaluate asks about a request by rules, check about a key by a policy.
	evaluate(request question) said
	check(policy, key string, permits int64) said
	// tells is what the driver would say where all is said.
	tells(all said) said
}

// drivers make the drivers, on stores of the tests.
var drivers = map[string]func(*testing.T, *store, *config.Config) driver{
	"rest": newRESTDriver, "redis": newRedisDriver, "envoy": newEnvoyDriver, "http": newHTTPDriver, "grpc": newGRPCDriver,
}

// said is an answer, by the names of its parts.
type said map[string]string

// parts are the names in their order; the first part is said without its name.
var parts = []string{"verdict", "left", "retry", "reset", "turn", "since", "lacks", "matched", "shadowed", "exceeded", "class", "via"}

func (s said) String() string {
	var list []string
	for _, name := range parts {
		switch value := s[name]; {
		case value == "":
		case name == "verdict":
			list = append(list, value)
		default:
			list = append(list, name+" "+value)
		}
	}
	return strings.Join(list, ", ")
}

// parseSaid reads an answer.
func parseSaid(text string) said {
	s := said{}
	for i, part := range strings.Split(text, ", ") {
		if name, value, _ := strings.Cut(part, " "); i > 0 {
			s[name] = value
			continue
		}
		s["verdict"] = part
	}
	return s
}

// only are some parts of an answer.
func (s said) only(names ...string) said {
	some := said{}
	for _, name := range names {
		some[name] = s[name]
	}
	return some
}

// cases are the cases of a file for one driver.
type cases struct {
	t     *testing.T
	path  string
	name  string // of the driver
	lines []string
	at    int
	out   []string

	store  *store
	driver driver // nil where it can't run the case
}

// step makes one step, and compares its answer.
func (c *cases) step() {
	line, number := c.lines[c.at], c.at+1
	var below []string
	for c.at++; c.at < len(c.lines) && strings.HasPrefix(c.lines[c.at], "    "); c.at++ {
		below = append(below, c.lines[c.at][4:])
	}
	c.out = append(c.out, line)
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case line == "" || line[0] == '#':
	case word == "service":
		c.start(strings.Join(below, "\n"))
	case word == "not":
		if name, why, found := strings.Cut(rest, ": "); !found || why == "" || drivers[name] == nil {
			c.t.Fatalf("%s:%d: %s; want a driver, and why", c.path, number, line)
		} else if name == c.name {
			c.driver = nil
		}
	case word == "store":
		c.store.fail(map[string]error{
			"answers": nil, "unreachable": stint.ErrUnavailable, "overloaded": stint.ErrOverloaded,
		}[rest])
	case line[0] == '+':
		c.store.advance(must.Get(time.ParseDuration(line[1:]))(c.t))
	default:
		got := below
		if c.driver != nil {
			got = c.ask(line)
		}
		if c.driver != nil && !*rewrite {
			var want []string
			for _, text := range below {
				want = append(want, c.counted(text, func(s said) said { return c.driver.tells(s) }))
			}
			if merged(want) != merged(got) {
				c.t.Errorf("%s:%d: %s\n    %s\nwant\n    %s", c.path, number, line, strings.Join(got, "\n    "), strings.Join(want, "\n    "))
			}
		}
		below = got
	}
	for _, answer := range below {
		c.out = append(c.out, "    "+answer)
	}
}

// start makes a driver of settings.
func (c *cases) start(settings string) {
	file := filepath.Join(c.t.TempDir(), "stint.yaml")
	must.Do(c.t, os.WriteFile(file, []byte(settings), 0o600))
	loaded := must.Get(config.Load(config.Sources{File: file}))(c.t)
	c.store = newStore()
	for _, line := range c.lines[c.at:] { // what a driver can't run it may not be able to make
		if strings.HasPrefix(line, "not "+c.name+":") {
			c.driver = nil
			return
		} else if !strings.HasPrefix(line, "not ") {
			break
		}
	}
	c.driver = drivers[c.name](c.t, c.store, &loaded)
}

// ask makes a request, or many of them.
func (c *cases) ask(line string) (answers []string) {
	n, many, _ := strings.Cut(line, " ")
	times, err := strconv.Atoi(n)
	if err != nil {
		return []string{c.one(line).String()}
	}
	counts := map[string]int{}
	for range times {
		s := c.one(many)
		text := s.only("verdict", "matched", "shadowed", "class", "via").String()
		if counts[text]++; counts[text] == 1 {
			answers = append(answers, text)
		}
	}
	for i, text := range answers {
		answers[i] = fmt.Sprint(counts[text], " ", text)
	}
	return answers
}

// one makes a request.
func (c *cases) one(line string) said {
	word, rest, _ := strings.Cut(line, " ")
	fields := strings.Fields(rest)
	switch {
	case word == "evaluate" && len(fields) >= 2 && len(fields)%2 == 0:
		return c.driver.evaluate(fields)
	case word == "check" && len(fields) == 3:
		return c.driver.check(fields[0], fields[1], must.Get(strconv.ParseInt(fields[2], 10, 64))(c.t))
	}
	c.t.Fatalf("%s: %q is no step", c.path, line)
	return nil
}

// counted is an answer as told, behind its number if it is counted.
func (c *cases) counted(text string, tell func(said) said) string {
	n, rest, _ := strings.Cut(text, " ")
	if _, err := strconv.Atoi(n); err == nil {
		return n + " " + tell(parseSaid(rest)).String()
	}
	return tell(parseSaid(text)).String()
}

// merged are answers in a text; the numbers of those that are told alike are added.
func merged(answers []string) string {
	counts := map[string]int{}
	for _, answer := range answers {
		n, rest, _ := strings.Cut(answer, " ")
		if times, err := strconv.Atoi(n); err == nil {
			counts[rest] += times
		} else {
			counts[answer]++
		}
	}
	var list []string
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprint(counts[text], " ", text))
	}
	return strings.Join(list, "\n")
}

// A question is in the words of STINT.EVALUATE: the method, the path, and names with values.
type question []string

// named are the values whose names begin so, without that.
func (w question) named(prefix string) map[string]string {
	values := map[string]string{}
	for pair := range slices.Chunk(w[2:], 2) {
		if name, found := strings.CutPrefix(pair[0], prefix); found {
			values[name] = pair[1]
		}
	}
	return values
}

// refused is what is said to a request that is not decided.
func refused(err error) said {
	for word, cause := range map[string]error{
		"invalid": stint.ErrInvalid, "overloaded": stint.ErrOverloaded, "unavailable": stint.ErrUnavailable,
	} {
		if errors.Is(err, cause) {
			return said{"verdict": word}
		}
	}
	return said{"verdict": err.Error()}
}
