package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the man pages, for packages of the program.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the man pages of all commands into a folder",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(command *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // everybody reads man pages
				return failed(err)
			}
			root := command.Root()
			root.DisableAutoGenTag = true // the date is in the footer, from SOURCE_DATE_EPOCH if set
			header := doc.GenManHeader{Section: "1", Source: "stint", Manual: "User Commands"}
			return failed(doc.GenManTree(root, &header, args[0]))
		},
	}
}
