package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/service/internal/doctor"
)

// findingCodes are the exit codes of findings; the largest counts. What is unknown or well has no
// code, and leaves 0.
var findingCodes = map[string]int{
	doctor.Advice: exitFailed, doctor.Wrong: exitUsage, doctor.Unreachable: exitUnreachable,
}

// doctorCommand is `stint doctor`. It looks at everything before it says anything, so that one run
// shows all there is to change.
func doctorCommand(p process) *cobra.Command {
	command := newCommand("doctor")
	load := settingFlags(p, command.Flags(), append(storeSettings(), "rules_from")...)
	f := struct {
		JSON    bool
		Timeout time.Duration
	}{Timeout: 5 * time.Second}
	addFlags(command.Flags(), "doctor", &f)
	command.RunE = func(command *cobra.Command, _ []string) error {
		loaded, err := load()
		if err != nil {
			return err
		}
		findings, err := doctor.Look(command.Context(), loaded, f.Timeout)
		if err != nil {
			return notOpened(err)
		}
		worst := 0
		rows := [][]string{{"STATUS", "CHECK", "SERVER", "FOUND", "CHANGE"}}
		for _, found := range findings {
			worst = max(worst, findingCodes[found.Status])
			rows = append(rows, []string{
				found.Status, found.Check, cmp.Or(found.Server, "-"), found.Found, cmp.Or(found.Change, "-"),
			})
		}
		if f.JSON {
			err = sayJSON(p.Out, findings, "")
		} else {
			err = sayTable(p.Out, rows)
		}
		if err != nil || worst == 0 {
			return err
		}
		return exit{code: worst}
	}
	return command
}
