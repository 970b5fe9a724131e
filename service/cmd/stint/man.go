package main

import (
	"github.com/spf13/cobra"

	"github.com/stint-go/stint/service/internal/manpage"
)

// manCommand writes the man pages, for packages of the program.
func manCommand(p process) *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the man pages of all commands into a folder",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(command *cobra.Command, args []string) error {
			return failed(manpage.Write(command.Root(), args[0], p.env("SOURCE_DATE_EPOCH")))
		},
	}
}
