package main

import (
	"fmt"
	"strings"
	"testing"
)

// A rule goes into shadow, is watched, is enforced and goes back, by commands alone, as docs/shadow.md has it.
func TestRuleInShadow(t *testing.T) {
	t.Parallel()
	base, admin := startAdmin(t)
	file := writeFile(t, `
rules:
  - id: login
    match: {path: /login}
    scope: per_ip
    limits: [{algorithm: fixed_window, limit: 1, calendar: year}]
  - {id: day, scope: per_ip, limits: [{algorithm: fixed_window, limit: 9, calendar: year}]}
`)
	env := map[string]string{"STINT_ADMIN": admin, "STINT_SERVER": base}
	request := "--path /login --ip 192.0.2.1"
	for _, step := range []struct {
		args string
		code int
		want string // in the output
	}{
		{"rules apply " + file, exitOK, "added day, login"},
		{"denials", exitOK, "no denials among the last 0 clients of rules since 20"},
		{"denials --shadow", exitOK, "nothing would have been denied in shadow among the last 0"},
		{`rules patch login {"on_exceed":"shadow"} --comment try`, exitOK, "login: shadow  /login  1 per year"},
		{"check " + request, exitOK, "allowed"},
		{"check " + request, exitOK, "shadow       would be denied by login\n"},
		{"denials", exitOK, "no denials"},
		{"denials --shadow", exitOK, " login "},
		{"denials --shadow", exitOK, "\nclients have pseudonyms here; holders of a token of admin.tokens_file are shown names\n"},
		{"denials --shadow --rule day", exitOK, "nothing would have been denied"},
		{"denials --shadow --json", exitOK, `"shadow":true`},
		{"denials --client x", exitFailed, "with a token only"},
		{"denials --shadow --since 1h", exitOK, " login "},
		{"denials --since 2999-01-01T00:00:00Z", exitOK, "since 2999-01-01T00:00:00Z; 1 of 1 processes answered; what processes that have ended denied is lost; programs that use the library record none"},
		{"denials --since yesterday", exitUsage, `--since is "yesterday"; allowed: a time such as`},
		{"denials --reason baned", exitFailed, "holds (did you mean banned?)"},
		{"denials --reason banned", exitOK, "no denials among"},
		{"denials --rule logn", exitFailed, `there is no rule "logn" (did you mean login?)`},
		{"denials --rule algorithm/token_bucket", exitOK, "no denials among"},
		{"denials --id made-up", exitOK, "no denials among"},
		{"denails", exitUsage, `unknown command "denails" for "stint" (did you mean denials?)`},
		{"denials --limit 0", exitFailed, "limit is \"0\"; allowed: 1 to"},
		{`rules patch login {"on_exceed":null}`, exitOK, "login: enforced"},
		{"check " + request, exitDenied, "reason       limit\n"},
		{"denials --rule login", exitOK, "login  -      "},
		{`rules patch login {"classes":{"by":{"attribute":"class"},"keep":{"batch":"0%"},"default":"batch"}}`, exitOK, "login: enforced"},
		{"check " + request, exitDenied, "reason       limit\n"},
		{"denials --rule login", exitOK, "  limit   1 fixed_window  "},
		{"rules rollback 2 --rule login", exitOK, "changed login"},
		{"check " + request, exitOK, "would be denied by login"},
		{"rules patch login", exitUsage, "there are 1 arguments; allowed: the ID of a rule, and a patch"},
		{"rules patch login {", exitFailed, "400"},
		{"rules patch login []", exitFailed, "400"},
		{"rules patch nobody {}", exitFailed, `there is no rule "nobody"`},
		{"rules rollback --rule login", exitUsage, "there are 0 revisions; allowed: the number of one, as `stint rules revisions` lists"},
		{"rules revisions 1", exitOK, "compared with revision 0\n+ day\n+ login\n"},
		{"rules revisions newest", exitUsage, `revision is "newest"; allowed: the number of one`},
		{"rules revisions 1 2", exitUsage, "there are 2 revisions; allowed: the number of one"},
		{"rules revisions 1 --rule login", exitUsage, "--rule or --limit is given with a number; allowed: in the list"},
		{"rules rollback -- -1", exitUsage, `revision is "-1"; allowed: the number of one`},
		// The service of the environment is asked, unless flags name rules of their own.
		{"rules explain " + request, exitOK, "login"},
		{"rules explain --admin " + base + " " + request, exitFailed, "another listener: --admin takes the URL of the admin listener"},
		{"check --server " + admin + " " + request, exitFailed, "another listener: --server takes the URL of the REST API"},
		{"rules explain --rules " + file + " " + request, exitOK, "login  limited"},
		{"check --wait 5s k", exitUsage, "the duration of --wait only after =, as in --wait=5s"},
	} {
		// What was denied is gathered once a second.
		eventually(t, fmt.Sprintf("stint %s exits with %d and says %s", step.args, step.code, step.want), func() bool {
			code, stdout, stderr := do(t, env, strings.Fields(step.args)...)
			return code == step.code && strings.Contains(stdout+stderr, step.want)
		})
	}
	// Where nothing names rules there are none to explain.
	for _, args := range []string{"", "--store memory://"} {
		code, stdout, stderr := do(t, nil, append([]string{"rules", "explain"}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(stderr, "no rules are named; allowed: the URL of a service with --admin") {
			t.Errorf("explain %s exits with %d: %s%s", args, code, stdout, stderr)
		}
	}
}
