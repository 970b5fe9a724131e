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
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Look at a configuration, its rules and its store, and say what to change",
		Long: "Look at a configuration, its rules and its store: versions, rights, settings, clocks and round\n" +
			"trips of Redis. Run it with the file and the variables of the service. It changes nothing; " +
			"it decides with a key of\n" +
			"its own, whose state expires within minutes.\n\n" +
			"It exits with 0 when all is well, 1 with advice, 2 when something is configured wrongly, and 4\n" +
			"when the store or the rules can't be reached.",
		Args: cobra.NoArgs,
	}
	load := settingFlags(p, command.Flags(), append(storeSettings(), "rules_from")...)
	asJSON := jsonFlag(command)
	timeout := 5 * time.Second
	command.Flags().Var((*timeoutFlag)(&timeout), "timeout", "longest `DURATION` to wait for the store, and for the rules")
	command.RunE = func(command *cobra.Command, _ []string) error {
		loaded, err := load()
		if err != nil {
			return err
		}
		findings, err := doctor.Look(command.Context(), loaded, timeout)
		if err != nil {
			return notOpened(err)
		}
		worst := 0
		rows := [][]string{{"STATUS", "CHECK", "SERVER", "FOUND", "CHANGE"}}
		for _, f := range findings {
			worst = max(worst, findingCodes[f.Status])
			rows = append(rows, []string{f.Status, f.Check, cmp.Or(f.Server, "-"), f.Found, cmp.Or(f.Change, "-")})
		}
		if *asJSON {
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
