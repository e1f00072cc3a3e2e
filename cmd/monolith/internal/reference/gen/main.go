// Command gen writes the reference pages: gen MODULE_FOLDER TARGET_FOLDER.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/cmd/monolith/internal/reference"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gen MODULE_FOLDER TARGET_FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(source, target string) error {
	pages, err := reference.Pages(source)
	if err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(target, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
