package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// release is set by the linker where a release is built; otherwise the module
// and the commit tell.
var release string

// buildInfo is what `version --json` prints.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"commit_time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() buildInfo {
	v := buildInfo{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if v.Version == "" && info.Main.Version != "(devel)" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.time":
				v.Time = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	if v.Version == "" {
		v.Version = "devel"
	}
	return v
}

func (env *environment) versionCommand() *cli.Command {
	return &cli.Command{
		Name:      "version",
		Usage:     "print what was built",
		UsageText: "tailer version [--json]\n\nExample:\n   tailer version --json",
		Flags:     []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			v := buildVersion()
			if c.Bool("json") {
				return env.printJSON(v)
			}
			fmt.Fprintf(env.stdout, "tailer %s\n", v.Version)
			if v.Commit != "" {
				modified := ""
				if v.Modified {
					modified = ", modified"
				}
				fmt.Fprintf(env.stdout, "commit %s (%s%s)\n", v.Commit, v.Time, modified)
			}
			fmt.Fprintf(env.stdout, "%s %s\n", v.Go, v.Platform)
			return nil
		},
	}
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print JSON"} }

func (env *environment) printJSON(v any) error {
	enc := json.NewEncoder(env.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
