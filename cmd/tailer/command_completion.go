package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// completions ask the program itself, so they never lag behind its flags.
var completions = map[string]string{
	"bash": `_tailer() {
  local cur="${COMP_WORDS[COMP_CWORD]}" ask=("${COMP_WORDS[@]:0:$COMP_CWORD}")
  [[ "$cur" == -* ]] && ask+=("$cur")
  COMPREPLY=($(compgen -W "$("${ask[@]}" --generate-bash-completion 2>/dev/null | cut -d: -f1)" -- "$cur"))
}
complete -o bashdefault -o default -F _tailer tailer
`,
	"zsh": `#compdef tailer
_tailer() {
  local -a ask replies
  ask=("${(@)words[1,CURRENT-1]}")
  [[ "${words[CURRENT]}" == -* ]] && ask+=("${words[CURRENT]}")
  replies=("${(@f)$("${ask[@]}" --generate-bash-completion 2>/dev/null | cut -d: -f1)}")
  compadd -a replies || _files
}
compdef _tailer tailer
`,
	"fish": `complete -c tailer -a '(set -l ask (commandline -opc); set -l cur (commandline -ct); string match -q -- "-*" $cur; and set -a ask $cur; $ask --generate-bash-completion 2>/dev/null | string split -f1 :)'
`,
}

func (env *environment) completionCommand() *cli.Command {
	shells := strings.Join(slices.Sorted(maps.Keys(completions)), "|")
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the completion of a shell",
		ArgsUsage: shells,
		UsageText: "tailer completion " + shells + "\n\nExample:\n   source <(tailer completion bash)",
		Action: func(c *cli.Context) error {
			script, ok := completions[c.Args().First()]
			if !ok || c.NArg() != 1 {
				return usageError("tailer completion bash", "completion wants one of %s", strings.ReplaceAll(shells, "|", ", "))
			}
			_, err := fmt.Fprint(env.stdout, script)
			return err
		},
	}
}
