// Command controlplane is a whole Kubernetes control plane in one file: it is kube-apiserver, kube-controller-manager,
// kube-scheduler, etcd, kwok or kubectl by the name it is called with. One binary, because the six share nearly all of
// their code: linked apart they would take six times the disk and the time.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"

	// What the programs' own mains register: log formats, metrics of clients and of the version.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	name := filepath.Base(os.Args[0])
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kwok":
		os.Exit(runKwok())
	}
	command, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s: call me kube-apiserver, kube-controller-manager, kube-scheduler, etcd, kwok or kubectl\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}

// runKwok does what kwok's own main does, which its module does not offer as a function, and returns the exit code.
func runKwok() int {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx, logger := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		fmt.Fprint(os.Stderr, flags.FlagUsages())
		logger.Error("kwok's flags", "err", err)
		return 1
	}
	command := kwok.NewCommand(ctx)
	command.Version = "" // or cobra adds a flag that Kubernetes' own packages have added to all of the process already
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("kwok", "err", err)
		return 1
	}
	return 0
}
