// Take takes a permit for each line of its standard input, from a limiter on the Redis that it is
// given.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/measure"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

func main() {
	measure.Listen()
	conn, err := rueidis.Dial(rueidis.Config{URL: os.Args[1]})
	must(err)
	store, err := redisstore.New(conn, redisstore.Options{KeyPrefix: "measure"})
	must(err)
	limiter, err := stint.New(store, "measure", stint.TokenBucket(1_000_000, stint.PerSecond(1_000_000)))
	must(err)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		d, err := limiter.Allow(context.Background(), "ann")
		must(err)
		fmt.Println(d.Allowed)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
