package main

import (
	"net/http/httptest"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
)

func TestLimitOfTheCommandLine(t *testing.T) {
	store := testredis.Start(t).URL()
	inherited := map[string]string{"STINT_STORE": store, "STINT_STORE_TIMEOUT": "1m"}
	transcript(t, "limit.txt", inherited, "STORE", "--store "+store+" --timeout=1m")
}

const loginRules = `
rules:
  - {id: login, set: web, match: {methods: [POST], path: /login}, scope: per_ip, limits: [{algorithm: fixed_window, limit: 2, window: 365d}]}
  - {id: quota, match: {path: /quota}, scope: global, otherwise: extra, limits: [{algorithm: fixed_window, limit: 1, window: 365d}],
     classes: {by: {attribute: class}, keep: {critical: 0%, batch: 40%}, default: batch}}
  - {id: extra, match: {path: /extra}, scope: global, limits: [{algorithm: token_bucket, capacity: 5, refill: 1/1h}]}
  - {id: users, match: {path: /mine}, scope: per_user, missing: deny, missing_status: 401, limits: [{algorithm: fixed_window, limit: 2, window: 365d}]}
`

func TestRequestOfTheCommandLine(t *testing.T) {
	base, admin := startAdmin(t, "--rules-from", writeFile(t, loginRules))
	nobody := httptest.NewServer(nil)
	nobody.Close()
	transcript(t, "requests.txt", map[string]string{"STINT_SERVER": base, "STINT_ADMIN": admin}, "ADMIN", admin, "NOBODY", nobody.URL)
}
