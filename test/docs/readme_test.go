package docs_test

import (
	"context"
	"fmt"
	"log"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
)

func main() {
	limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(2, stint.PerMinute(2)))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		decision, err := limiter.Allow(context.Background(), "user:42")
		fmt.Println(decision.Allowed, decision.Remaining, err) // an error says that the store could not decide
	}
}

// The program of README.md, whose bucket does not refill while it runs.
func Example_first() {
	main()
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
