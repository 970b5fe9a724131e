package reload_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// A due claim is what a rule claims for a request.
type due struct {
	*known
	claim stint.Claim
}

// An expectation is what a set makes of a request before the store is asked.
type expectation struct {
	matched  []string
	standing rules.Outcome // Banned or Lacking if that denies the request
	decider  string        // who denies it then
	shadowed []string      // who would deny it without being asked
	claims   []due
	shadows  []due
}

// expect is what the set makes of a request.
func (v *version) expect(r *request) *expectation {
	e := &expectation{standing: rules.Limited}
	for _, k := range v.match(r) {
		standing, claim := k.claim(r)
		if standing == rules.Skipped {
			continue
		}
		e.matched = append(e.matched, k.rule.ID)
		shadow := k.rule.OnExceed == rules.Shadow
		switch {
		case standing == rules.Unlimited:
		case standing == rules.Limited && shadow:
			e.shadows = append(e.shadows, due{k, claim})
		case standing == rules.Limited:
			e.claims = append(e.claims, due{k, claim})
		case shadow:
			e.shadowed = append(e.shadowed, k.rule.ID)
		case e.decider == "":
			e.standing, e.decider = standing, k.rule.ID
		}
	}
	if e.decider != "" {
		e.claims, e.shadows = nil, nil
	}
	return e
}

// claim is what the rule makes of the request's client.
func (k *known) claim(r *request) (rules.Outcome, stint.Claim) {
	plain, shown, lacks := "", "", false
	for i, scope := range k.rule.Scope {
		value := k.value(scope, r)
		lacks = lacks || value == ""
		if i > 0 {
			plain, shown = plain+"|", shown+"|"
		}
		plain += value
		if scope == rules.PerAPIKey {
			sum := sha256.Sum256([]byte(value))
			value = `\sha256:` + hex.EncodeToString(sum[:])
		}
		shown += value
	}
	if lacks {
		switch k.rule.Missing {
		case rules.MissingSkip:
			return rules.Skipped, stint.Claim{}
		case rules.MissingIP:
			plain, shown = "", `\ip:`+r.Address
		default:
			return rules.Lacking, stint.Claim{}
		}
	}
	policy, unlimited := k.policy, k.rule.Unlimited
	if other, overridden := k.overrides[plain]; overridden {
		policy, unlimited = other, other == nil && k.unlimited(plain)
	}
	switch {
	case unlimited:
		return rules.Unlimited, stint.Claim{}
	case policy == nil:
		return rules.Banned, stint.Claim{}
	}
	return rules.Limited, stint.Claim{Key: shown, Policy: policy, Permits: k.cost(r)}
}

// unlimited reports whether the override of a client says so.
func (k *known) unlimited(client string) bool {
	for _, o := range k.rule.Overrides {
		if o.Key == client {
			return o.Unlimited
		}
	}
	return false
}

// value is what the request has for a part of the scope.
func (k *known) value(scope string, r *request) string {
	switch scope {
	case rules.Global:
		return "*"
	case rules.PerIP:
		return r.Address
	case rules.PerUser:
		return r.User
	case rules.PerAPIKey:
		return r.APIKey
	case rules.Custom("team"):
		return r.team
	default:
		return r.Attributes["tenant"]
	}
}

// cost is what the request takes. The header field has one line, a sound one.
func (k *known) cost(r *request) int64 {
	named := ""
	if k.rule.Cost.Header != "" {
		named = r.Header.Get(k.rule.Cost.Header)
	} else if k.rule.Cost.Attribute != "" {
		named = r.Attributes[k.rule.Cost.Attribute]
	}
	if n, err := strconv.ParseInt(named, 10, 64); err == nil {
		return n
	}
	return max(k.rule.Cost.Permits, 1)
}
