// Kueue's controllers for Jobs, queues and ProvisioningRequests, and its scheduler, without webhooks: they need
// certificates, and only default what the tests write out.
package main

import (
	"context"
	"flag"
	"log"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/admissionchecks/provisioning"
	"sigs.k8s.io/kueue/pkg/controller/core"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/controller/jobs/job"
	"sigs.k8s.io/kueue/pkg/scheduler"
	preemptexpectations "sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
)

func main() {
	options := zap.Options{}
	options.BindFlags(flag.CommandLine)
	flag.Parse() // controller-runtime adds --kubeconfig
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&options)))
	ctx := ctrl.SetupSignalHandler()
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 newScheme(),
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
	})
	check(err)
	check(setUp(ctx, mgr))
	check(mgr.Start(ctx))
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, batchv1.AddToScheme, autoscaling.AddToScheme,
		config.AddToScheme, kueue.AddToScheme, kueuev1beta1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

func setUp(ctx context.Context, mgr ctrl.Manager) error {
	settings := &config.Configuration{}
	mgr.GetScheme().Default(settings)
	if err := indexer.Setup(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	cache, expectations, requeuer := schdcache.New(mgr.GetClient()), preemptexpectations.New(), qcache.NewRequeuer()
	if err := mgr.Add(requeuer); err != nil {
		return err
	}
	queues := qcache.NewManager(mgr.GetClient(), cache, requeuer, qcache.WithPreemptionExpectations(expectations))
	if _, err := core.SetupControllers(mgr, queues, cache, settings, nil, expectations, nil); err != nil {
		return err
	}
	if err := setUpJobs(ctx, mgr); err != nil {
		return err
	}
	if err := setUpRequests(ctx, mgr); err != nil {
		return err
	}
	go queues.CleanUpOnContext(ctx)
	go cache.CleanUpOnContext(ctx)
	recorder := mgr.GetEventRecorderFor(constants.AdmissionName)
	return mgr.Add(scheduler.New(queues, cache, mgr.GetClient(), recorder, scheduler.WithPreemptionExpectations(expectations)))
}

func setUpJobs(ctx context.Context, mgr ctrl.Manager) error {
	recorder := mgr.GetEventRecorderFor(constants.JobControllerName)
	reconciler, err := job.NewReconciler(ctx, mgr.GetClient(), mgr.GetFieldIndexer(), recorder)
	if err != nil {
		return err
	}
	if err := job.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	jobframework.EnableIntegration(job.FrameworkName)
	return reconciler.SetupWithManager(mgr)
}

func setUpRequests(ctx context.Context, mgr ctrl.Manager) error {
	if err := provisioning.SetupIndexer(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	recorder := mgr.GetEventRecorderFor("kueue-provisioning-request-controller")
	controller, err := provisioning.NewController(mgr.GetClient(), recorder, nil)
	if err != nil {
		return err
	}
	return controller.SetupWithManager(mgr)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
