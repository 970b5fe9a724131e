// Command app is a web application that knows nothing of limits: it answers what it was asked,
// with the status that ?status= names. The examples put a proxy in front of it.
//
// It stands for any application that is not to be changed: all that happens to its clients is the
// proxy's doing.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// headTimeout is how long a request's head may take to come.
const headTimeout = 5 * time.Second

// An answer is a request as the application saw it.
type answer struct {
	// how many requests have been answered, this one among them
	Served int64       `json:"served"`
	Method string      `json:"method"`
	URI    string      `json:"uri"` // as it was written
	Host   string      `json:"host"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
}

// An app answers requests. The zero value is ready to use, by many at once.
type app struct{ served atomic.Int64 }

// ServeHTTP implements [http.Handler].
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status := http.StatusOK
	if text := r.URL.Query().Get("status"); text != "" {
		if status, err = strconv.Atoi(text); err != nil || status < 200 || status > 599 {
			http.Error(w, fmt.Sprintf("status is %q; allowed: 200 to 599", text), http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer{ // a client that is gone has no use for the error
		a.served.Add(1), r.Method, r.RequestURI, r.Host, r.Header, string(body),
	})
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "the address, as host:port")
	flag.Parse()
	server := http.Server{Addr: *listen, Handler: new(app), ReadHeaderTimeout: headTimeout}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1)
	}
}
