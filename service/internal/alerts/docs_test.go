package alerts_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/service/internal/alerts"
)

// An alert has the fields of docs/alerts.md that the receiver looks at.
type alert struct{ ID, Kind, Rule, Client string }

// An inbox receives alerts as docs/alerts.md shows it.
type inbox struct {
	secret []byte
	seen   sync.Map
	take   func(alert)
}

func (i *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	mac := hmac.New(sha256.New, i.secret)
	mac.Write([]byte(r.Header.Get("Stint-Timestamp") + "." + string(body)))
	signature := fmt.Sprintf("sha256=%x", mac.Sum(nil))
	if err != nil || !hmac.Equal([]byte(signature), []byte(r.Header.Get("Stint-Signature"))) {
		http.Error(w, "not from stint", http.StatusForbidden)
		return
	}
	var batch struct{ Events []alert }
	if err := json.Unmarshal(body, &batch); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, event := range batch.Events {
		if _, again := i.seen.LoadOrStore(event.ID, true); !again { // an event may come twice
			i.take(event)
		}
	}
}

// The receiver of the page takes what a sender with its secret sends, and refuses what another one does.
func TestInbox(t *testing.T) {
	taken := make(chan alert, 1)
	server := httptest.NewServer(&inbox{secret: []byte("shared"), take: func(event alert) { taken <- event }})
	t.Cleanup(server.Close)
	for secret, want := range map[string]alerts.Stats{"shared": {Sent: 1}, "another": {Failed: 1}} {
		config := alerts.Config{URL: server.URL, Secret: []byte(secret), Gather: time.Millisecond, MaxTries: 1}
		sender, stop := start(t, config)
		sender.Observe(t.Context(), denied(secret))
		for deadline := time.Now().Add(5 * time.Minute); sender.Stats().Sent+sender.Stats().Failed == 0 && time.Now().Before(deadline); {
			<-time.After(time.Millisecond)
		}
		stop()
		if got := sender.Stats(); got != want {
			t.Errorf("with the secret %q: %+v, want %+v", secret, got, want)
		}
	}
	if event := <-taken; event.Client != "shared" || len(taken) > 0 {
		t.Errorf("taken: %+v", event)
	}
}
