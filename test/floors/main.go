// Command floors has several processes share the floors of docs/organisations.md on one Redis, and says
// what each team got.
//
//	go run ./test/floors -store redis://127.0.0.1:6379 -processes 8 -for 30s
//
// For the first half search asks alone, three times what there is. Then mail asks for what there is,
// too, and ads for a little less than its floor, so that it has to be admitted always. It fails if ads
// is denied, if mail has less than its floor, or if all together have more than C + R x (b - a) / P. The
// server is used as it is, under a prefix of its own.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

// Counts are requests of a half, of one process or of all, and when the first and the last were admitted
// by the server's clock.
type counts struct {
	Asked, Admitted, Borrowed int
	First, Last               stint.Instant
}

// and is the sum of two counts, from the earlier first to the later last.
func (n counts) and(o counts) counts {
	first := min(n.First, o.First)
	if first == 0 { // of one that admitted nothing
		first = max(n.First, o.First)
	}
	return counts{n.Asked + o.Asked, n.Admitted + o.Admitted, n.Borrowed + o.Borrowed, first, max(n.Last, o.Last)}
}

// A half of the run has the counts of each team.
type half map[string]counts

const (
	rate     = 1000 // of the organisation, a second
	capacity = 1000
)

// asks are what each team asks for a second in each half, of all processes.
var asks = [2]map[string]float64{{"search": 3 * rate}, {"search": 3 * rate, "mail": rate, "ads": 290}}

func main() {
	store := flag.String("store", "redis://127.0.0.1:6379", "URL of the server")
	processes := flag.Int("processes", 8, "how many processes ask")
	runFor := flag.Duration("for", 30*time.Second, "how long, both halves together")
	page := flag.String("rules", "docs/organisations.md", "a page whose first document of rules is used")
	begin := flag.Int64("begin", 0, "used by the processes that this one starts: when to begin, Unix milliseconds")
	flag.Parse()
	var err error
	if *begin == 0 {
		err = lead(*processes, *runFor)
	} else {
		err = ask(*store, *page, time.UnixMilli(*begin), *processes, *runFor)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// lead starts the processes, adds up what they say, and checks it.
func lead(processes int, runFor time.Duration) error {
	begin := time.Now().Add(3 * time.Second).UnixMilli()
	answers := make([][]byte, processes)
	errs := make([]error, processes)
	var running sync.WaitGroup
	for i := range processes {
		running.Go(func() {
			//nolint:noctx // itself, until it has ended
			command := exec.Command(os.Args[0], append(os.Args[1:], fmt.Sprint("-begin=", begin))...)
			command.Stderr = os.Stderr
			answers[i], errs[i] = command.Output()
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	sums := [2]half{{}, {}}
	for _, answer := range answers {
		var of [2]half
		if err := json.Unmarshal(answer, &of); err != nil {
			return err
		}
		for i := range of {
			for team, n := range of[i] {
				sums[i][team] = sums[i][team].and(n)
			}
		}
	}
	seconds := runFor.Seconds() / 2
	var all counts
	for i, title := range []string{"search alone", "all three"} {
		fmt.Printf("%s, %v s:\n", title, seconds)
		for _, team := range []string{"search", "ads", "mail"} {
			n := sums[i][team]
			all = all.and(n)
			fmt.Printf("  %-6s asked %6d, admitted %6d (%4.0f a second), of these borrowed %6d\n", team, n.Asked, n.Admitted,
				float64(n.Admitted)/seconds, n.Borrowed)
		}
	}
	lasted := all.Last.Time().Sub(all.First.Time())
	bound := capacity + int(rate*lasted.Seconds()) + 1
	fmt.Printf("together %d in %v, at most %d\n", all.Admitted, lasted, bound)
	ads, mail := sums[1]["ads"], sums[1]["mail"]
	if all.Admitted > bound || ads.Admitted < ads.Asked || float64(mail.Admitted) < 300*seconds {
		return errors.New("a floor or the bound does not hold")
	}
	return nil
}

// ask asks the part of one process, and writes its counts as JSON.
func ask(url, page string, begin time.Time, processes int, runFor time.Duration) error {
	set, err := rulesOf(page)
	if err != nil {
		return err
	}
	conn, err := rueidis.Dial(rueidis.Config{URL: url})
	if err != nil {
		return err
	}
	store, err := redisstore.New(conn, redisstore.Options{KeyPrefix: fmt.Sprint("floors-", begin.UnixMilli())})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Ready(context.Background()); err != nil {
		return err
	}
	limiter, err := enforce.New(enforce.Config{Store: store, Set: set})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	result := [2]half{{}, {}}
	var running sync.WaitGroup
	for i := range asks {
		from := begin.Add(time.Duration(i) * runFor / 2)
		for team, perSecond := range asks[i] {
			running.Go(func() {
				n := pace(limiter, team, from, runFor/2, perSecond/float64(processes))
				mu.Lock()
				defer mu.Unlock()
				result[i][team] = n
			})
		}
	}
	running.Wait()
	return json.NewEncoder(os.Stdout).Encode(result)
}

// pace asks for a team as often as it should, and counts.
func pace(limiter *enforce.Limiter, team string, from time.Time, lasts time.Duration, perSecond float64) (n counts) {
	r := rules.Request{Attributes: map[string]string{"organisation": "acme", "team": team}}
	var v enforce.Verdict
	for {
		due := from.Add(time.Duration(float64(n.Asked) / perSecond * float64(time.Second)))
		if due.Sub(from) >= lasts {
			return n
		}
		_ = sleep.For(context.Background(), time.Until(due)) // a context that never ends
		n.Asked++
		if err := limiter.Decide(context.Background(), &r, &v); err != nil {
			log.Fatal(err)
		}
		if v.Allowed {
			n.Admitted++
			if n.Last = v.Decision.At; n.First == 0 {
				n.First = n.Last
			}
			if v.Via == rules.ViaBorrowed {
				n.Borrowed++
			}
		}
	}
}

// rulesOf are the first rules that a page shows.
func rulesOf(page string) (*rules.Set, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	_, block, _ := strings.Cut(string(text), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	set, err := file.ParseSet(page, []byte(block), rules.Options{})
	return set, err
}
