package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/store"
	"github.com/stint-go/stint/rules/store/mongo"
)

func importCommand(p process) *cobra.Command {
	return &cobra.Command{
		Use:   "import URL",
		Short: "Convert the rules of FluxGate in a MongoDB",
		Long: "Convert the rules of FluxGate: the documents of the collection rate_limit_rules in the database\n" +
			"of the URL, mongodb://HOST/DATABASE[?collection=NAME]. The rules are printed as JSON, which\n" +
			"'stint rules validate' and rules_from read. What could not be kept is told on standard error.\n" +
			"Nothing is changed in the database.",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			list, notes, err := mongo.Import(command.Context(), args[0])
			switch {
			case errors.Is(err, stint.ErrInvalid):
				return misused("%v", err)
			case err != nil:
				return failed(err)
			}
			text, err := store.Encode(list)
			if err != nil {
				return failed(err)
			}
			for _, note := range notes {
				_, _ = fmt.Fprintln(p.Err, "stint: "+note) // which is for people only
			}
			return say(p.Out, "%s", text)
		},
	}
}
