package exact

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/oracle"
)

// A total is what all processes found in one part.
type total struct {
	decisions, remembered, admitted, model int64

	elapsed time.Duration // of the slowest process
	faults  []string
}

// check holds what the processes were answered against the model, client by client.
func check(keys int, policy *stint.Policy, reports []report) *total {
	t := &total{}
	for _, r := range reports {
		t.elapsed = max(t.elapsed, r.Elapsed)
	}
	for key := range keys {
		var faults []string
		merged := map[stint.Instant]moment{}
		for _, r := range reports {
			a := r.Clients[key]
			for at, m := range a.Decided {
				all := merged[at]
				merged[at] = moment{at, all.Admitted + m.Admitted, all.Denied + m.Denied, max(all.Until, m.Until)}
			}
			for _, s := range a.Recalled {
				t.remembered += s.Hits
			}
			faults = append(append(faults, a.Faults...), checkRecalled(a)...)
		}
		moments := slices.SortedFunc(maps.Values(merged), func(a, b moment) int { return cmp.Compare(a.At, b.At) })
		for _, m := range moments {
			t.decisions += m.Admitted + m.Denied
			t.admitted += m.Admitted
		}
		model, wrong := replay(policy, moments)
		t.model += model
		faults = append(faults, wrong...)
		for _, fault := range faults {
			t.faults = append(t.faults, fmt.Sprintf("client %d: %s", key, fault))
		}
	}
	t.decisions += t.remembered
	return t
}

// replay asks the exact model what Redis was asked, at the times of its decisions, and
// returns how many permits the model admits. Among requests of one time, each for one
// permit, those that were admitted came before those that were denied.
func replay(policy *stint.Policy, moments []moment) (admitted int64, faults []string) {
	model := oracle.New(0)
	op := stint.Op{Verb: stint.VerbTake, Claim: stint.Claim{Key: "client", Policy: policy, Permits: 1}}
	for _, m := range moments {
		for i := range m.Admitted {
			if !model.Decide(op, m.At).Decision.Allowed {
				faults = append(faults, fmt.Sprintf("at %d %d were admitted, the model admits %d", m.At, m.Admitted, i))
				break
			}
			admitted++
		}
		for range m.Denied {
			d := model.Decide(op, m.At).Decision
			if !d.Allowed {
				if until := m.At.Add(d.RetryAfter); until != m.Until {
					faults = append(faults, fmt.Sprintf("at %d denied until %d, by the model until %d", m.At, m.Until, until))
				}
				break
			}
			admitted++
			faults = append(faults, fmt.Sprintf("at %d one was denied that the model admits: a permit was lost", m.At))
		}
	}
	return admitted, faults
}

// checkRecalled checks the denials from a process's memory: each is one that Redis gave
// the same process at that time or before, and has not ended. Since nothing here gives
// permits back, the model denies until then, so nothing was lost by not asking.
func checkRecalled(a *account) (faults []string) {
	since := map[stint.Instant]stint.Instant{} // when Redis first denied until an instant
	for at, m := range a.Decided {
		if first, known := since[m.Until]; m.Denied > 0 && (!known || at < first) {
			since[m.Until] = at
		}
	}
	for until, s := range a.Recalled {
		if first, known := since[until]; !known || s.First < first || s.Last >= until {
			faults = append(faults, fmt.Sprintf("denied from memory at %d to %d until %d, which no denial of Redis said", s.First, s.Last, until))
		}
	}
	return faults
}
