package client_test

import (
	"net/http"
	"time"

	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/httplimit"
)

// A middleware that lets a service decide by its rules. The service is told the plan, which its rules match.
func ExampleClient_Rules() {
	service, err := client.Open("https://limits.example.com", client.Options{Token: "secret", Timeout: time.Second})
	if err != nil {
		panic(err)
	}
	defer service.Close()
	limit, err := httplimit.New(httplimit.Config{Rules: service.Rules("X-Plan")})
	if err != nil {
		panic(err)
	}
	http.Handle("/", limit.Wrap(http.NotFoundHandler()))
}
