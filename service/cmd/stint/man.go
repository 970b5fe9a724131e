package main

import (
	"github.com/spf13/cobra"

	"github.com/stint-go/stint/service/internal/manpage"
)

// manCommand writes the man pages, for packages of the program.
func manCommand(p process) *cobra.Command {
	command := newCommand("man")
	command.Args, command.Hidden = cobra.ExactArgs(1), true
	command.RunE = func(command *cobra.Command, args []string) error {
		return manpage.Write(command.Root(), args[0], p.env("SOURCE_DATE_EPOCH"))
	}
	return command
}
