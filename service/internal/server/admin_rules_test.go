package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// Two servers on one store are two processes: what one creates is in force in the other, and of
// two editors with one tag the second is told so.
func TestTwoProcessesOfOneRegistry(t *testing.T) {
	kept := rulestore.NewMemory()
	one, two := newAdminFixture(t, kept, nil), newAdminFixture(t, kept, nil)
	created := one.ask("POST", "/api/v1/rules", `{"id":"a","scope":"per_ip",`+fiveAnHour+`}`).is(201)
	eventually(t, func() bool {
		return two.post(evaluate, `{"path":"/","ip":"192.0.2.1"}`).evaluated(200).Rule == "a"
	})
	if got := two.ask("GET", "/api/v1/rules/a", "").is(200); got.body != created.body || got.etag() != created.etag() {
		t.Errorf("in the other process: %s", got.body)
	}
	one.ask("PATCH", "/api/v1/rules/a", `{"priority":1}`, "If-Match: "+created.etag()).is(200)
	two.ask("PATCH", "/api/v1/rules/a", `{"priority":2}`, "If-Match: "+created.etag()).problem(412)
	says(t, two.ask("GET", "/api/v1/rules/a", "").body, `"priority":1`)
}

// Concurrent edits with tags, in several processes, lose no edit.
func TestConcurrentEditorsLoseNoEdit(t *testing.T) {
	t.Parallel()
	kept := rulestore.NewMemory()
	fixtures := []*adminFixture{newAdminFixture(t, kept, nil), newAdminFixture(t, kept, nil)}
	fixtures[0].ask("POST", "/api/v1/rules", `{"id":"a","priority":0,"scope":"per_ip",`+fiveAnHour+`}`).is(201)
	const editors = 32
	var editing sync.WaitGroup
	for i := range editors {
		d := fixtures[i%2]
		editing.Go(func() {
			for { // read, add one, write: until nobody came between
				read := d.ask("GET", "/api/v1/rules/a", "")
				var rule struct{ Priority int }
				if err := json.Unmarshal([]byte(read.body), &rule); err != nil {
					t.Error(err)
					return
				}
				got := d.ask("PATCH", "/api/v1/rules/a", fmt.Sprintf(`{"priority":%d}`, rule.Priority+1), "If-Match: "+read.etag())
				switch got.status {
				case http.StatusOK:
					return
				case http.StatusPreconditionFailed, http.StatusConflict:
				default:
					t.Errorf("%d %s", got.status, got.body)
					return
				}
			}
		})
	}
	editing.Wait()
	if got := fixtures[1].ask("GET", "/api/v1/rules/a", "").is(200); !strings.Contains(got.body, fmt.Sprintf(`"priority":%d`, editors)) || got.header.Get(adminapi.HeaderRevision) != fmt.Sprint(editors+1) {
		t.Errorf("after %d edits: revision %s of %s", editors, got.header.Get(adminapi.HeaderRevision), got.body)
	}
}
