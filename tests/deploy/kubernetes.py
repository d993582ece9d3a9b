#!/usr/bin/env python3
"""Holds what deploy/kubernetes says against Kubernetes' own schemas (PyPI's kubernetes-validate), and its parts against each other: names, ports,
paths, mounts, probes, times. Started by tests/deploy/kubernetes.sh.

  tests/deploy/kubernetes.py FILE...
"""
import configparser
import re
import sys

import kubernetes_validate
import yaml

VERSION = "1.33"
# Where pod templates lie in objects that the schemas do not know, and which fields there are beside them: of the projects' own CRDs.
CUSTOM = {
    "LeaderWorkerSet": {
        "api": "leaderworkerset.x-k8s.io/v1",
        "fields": {"replicas", "leaderWorkerTemplate", "rolloutStrategy", "startupPolicy", "networkConfig"},
        "templates": [("leaderWorkerTemplate", "leaderTemplate"), ("leaderWorkerTemplate", "workerTemplate")],
        "nested": {("leaderWorkerTemplate",): {"leaderTemplate", "workerTemplate", "size", "restartPolicy", "subGroupPolicy", "resizePolicy", "volumeClaimTemplates"}},
        "values": {("leaderWorkerTemplate", "restartPolicy"): {"Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"}, ("startupPolicy",): {"LeaderCreated", "LeaderReady"}},
    },
    "MPIJob": {
        "api": "kubeflow.org/v2beta1",
        "fields": {"slotsPerWorker", "runLauncherAsWorker", "runPolicy", "mpiReplicaSpecs", "sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation"},
        "templates": [("mpiReplicaSpecs", "Launcher", "template"), ("mpiReplicaSpecs", "Worker", "template")],
        "nested": {
            ("mpiReplicaSpecs",): {"Launcher", "Worker"},
            ("mpiReplicaSpecs", "Launcher"): {"replicas", "template", "restartPolicy"},
            ("mpiReplicaSpecs", "Worker"): {"replicas", "template", "restartPolicy"},
            ("runPolicy",): {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy", "suspend", "managedBy"},
        },
        "values": {
            ("launcherCreationPolicy",): {"AtStartup", "WaitForWorkersReady"}, ("mpiImplementation",): {"OpenMPI", "Intel", "MPICH"},
            ("runPolicy", "cleanPodPolicy"): {"Running", "All", "None"},
            ("mpiReplicaSpecs", "Launcher", "restartPolicy"): {"Never", "OnFailure"}, ("mpiReplicaSpecs", "Worker", "restartPolicy"): {"Never", "OnFailure", "Always"},
        },
    },
}
WORKERS_END_S = 12  # the supervisor, of a job that was asked
COORDINATOR_ENDS_S = 5  # after --drain-timeout

failures = []


def check(holds, where, what):
    if not holds:
        failures.append(f"{where}: {what}")


def at(value, path):
    for key in path:
        value = value.get(key, {}) if isinstance(value, dict) else {}
    return value


def validate(resource, where):
    try:
        kubernetes_validate.validate(resource, VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        failures.append(f"{where}: {list(error.path)}: {error.message}")


def custom(resource, where):
    """Its pod templates; what stands around them is held against CUSTOM."""
    known = CUSTOM[resource["kind"]]
    check(resource["apiVersion"] == known["api"], where, f"apiVersion is not {known['api']}")
    spec = resource["spec"]
    check(set(spec) <= known["fields"], where, f"unknown fields {set(spec) - known['fields']}")
    for path, fields in known["nested"].items():
        check(set(at(spec, path)) <= fields, where, f"unknown fields {set(at(spec, path)) - fields}")
    for path, values in known["values"].items():
        check(at(spec, path) == {} or at(spec, path) in values, where, f"{path} is {at(spec, path)!r}, not one of {values}")
    return [(path, at(spec, path)) for path in known["templates"]]


def toml(text):
    """The part of TOML that the manifests use."""
    parser = configparser.ConfigParser()
    parser.read_string(text)
    return {section: dict(parser[section]) for section in parser.sections()}


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def check_pod(template, where, config, claims):
    pod = template["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]} | claims
    check(pod["securityContext"]["runAsNonRoot"], where, "runs as root")
    check(pod.get("automountServiceAccountToken") is False, where, "has a token that it does not need")
    for volume in pod["volumes"]:
        if volume["name"] == "shm":
            check(volume["emptyDir"].get("medium") == "Memory" and "sizeLimit" in volume["emptyDir"], where, "shm is no bounded memory")
    for container in pod["containers"]:
        security = container["securityContext"]
        check(not security["allowPrivilegeEscalation"] and security["readOnlyRootFilesystem"], where, "may do more than it needs")
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        for mount in mounts.values():
            check(mount["name"] in volumes, where, f"mounts {mount['name']}, which is no volume")
        check({mount["name"] for mount in mounts.values()} == volumes, where, f"leaves volumes unused: {volumes - {m['name'] for m in mounts.values()}}")
        check("memory" in container["resources"]["limits"], where, "has no limit of memory")
        names = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            for kind in ("httpGet", "tcpSocket"):
                port = at(container, (probe, kind, "port"))
                check(port == {} or port in names, where, f"{probe} asks the port {port}, which is none")
        if "nvidia.com/gpu" in container["resources"]["limits"] or "launcher" == container["name"]:
            check("/dev/shm" in mounts or container["name"] == "launcher", where, "has Kubernetes' small /dev/shm")
        command = " ".join(container["command"])
        if "--config=" in command:
            file = re.search(r"--config=(\S+)", command)[1]
            check(file in mounts, where, f"reads {file}, which is not mounted")
            section = config["coordinator" if container["name"] == "coordinator" else "supervisor"]
            for key, value in section.items():
                if value.startswith("/") and key != "model":
                    check(any(value.startswith(path + "/") for path in mounts), where, f"{key} = {value} is not mounted")
            grace = pod["terminationGracePeriodSeconds"]
            if container["name"] == "coordinator":
                least = seconds(section["drain-timeout"]) + COORDINATOR_ENDS_S
                for key, port in (("listen", "grpc"), ("http", "http"), ("metrics", "metrics")):
                    check(section[key] == f"0.0.0.0:{names.get(port)}", where, f"{key} = {section[key]}, but the container's port {port} is {names.get(port)}")
                check(at(container, ("readinessProbe", "httpGet", "path")) == "/ready", where, "readiness is not /ready")
                check(at(container, ("livenessProbe", "httpGet", "path")) == "/health", where, "liveness is not /health")
            else:
                least = WORKERS_END_S
            check(grace > least, where, f"has {grace} s to end, and may need {least}")


def main():
    resources = []
    for name in sys.argv[1:]:
        with open(name) as file:
            resources += [(f"{name}: {each['kind']} {each['metadata']['name']}", each) for each in yaml.safe_load_all(file) if each]
    config = next(toml(each["data"]["skein.toml"]) for _, each in resources if each["kind"] == "ConfigMap")
    pods = []  # (where, labels, template, names of claims)
    for where, each in resources:
        if each["kind"] in CUSTOM:
            for path, template in custom(each, where):
                wrapped = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
                validate(wrapped, f"{where}: {'.'.join(path)}")
                pods.append((f"{where}: {'.'.join(path)}", template, set()))
            continue
        validate(each, where)
        if "template" in each.get("spec", {}):
            claims = {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", [])}
            pods.append((where, each["spec"]["template"], claims))
            labels = each["spec"]["template"]["metadata"]["labels"]
            check(each["spec"]["selector"]["matchLabels"].items() <= labels.items(), where, "does not select its own pods")
    for where, template, claims in pods:
        check_pod(template, where, config, claims)
    all_ports = {port["name"]: port["containerPort"] for _, template, _ in pods for c in template["spec"]["containers"] for port in c.get("ports", [])}
    services = {}
    for where, each in resources:
        if each["kind"] == "Service":
            services[each["metadata"]["name"]] = each
            selected = [t for _, t, _ in pods if each["spec"]["selector"].items() <= t["metadata"]["labels"].items()]
            check(len(selected) == 1, where, f"selects {len(selected)} kinds of pods")
            for port in each["spec"]["ports"]:
                check(all_ports.get(port["targetPort"]) == port["port"], where, f"port {port['port']} is not the container's {port['targetPort']}")
        elif each["kind"] == "NetworkPolicy":
            chosen = [t for _, t, _ in pods if at(each, ("spec", "podSelector", "matchLabels")).items() <= t["metadata"]["labels"].items()]
            check(chosen, where, "chooses no pod")
            for rule in each["spec"]["ingress"]:
                for port in rule.get("ports", []):
                    check(port["port"] in all_ports.values(), where, f"port {port['port']} is no container's")
    host, port = config["supervisor"]["coordinator"].split(":")
    ports = [each["port"] for each in at(services.get(host, {}), ("spec", "ports")) or []]
    check(int(port) in ports, "skein.toml", f"workers come to {host}:{port}, where no service has that port")
    gpus = {at(c, ("resources", "limits")).get("nvidia.com/gpu") for _, t, _ in pods for c in t["spec"]["containers"]} - {None}
    check(gpus == {int(config["supervisor"]["ranks"])}, "skein.toml", f"ranks = {config['supervisor']['ranks']}, and pods have {gpus} GPUs")
    for where, each in resources:
        if each["kind"] not in CUSTOM:
            continue
        ranks_of_node = int(config["supervisor"]["ranks"])
        commands = [" ".join(c["command"]) for _, template in custom(each, where) for c in template["spec"]["containers"]]
        if each["kind"] == "MPIJob":
            check(each["spec"]["slotsPerWorker"] == ranks_of_node, where, f"slotsPerWorker is not {ranks_of_node}")
            of_all = f"--ranks={ranks_of_node * each['spec']['mpiReplicaSpecs']['Worker']['replicas']} "
            check(any(of_all in command for command in commands), where, f"no launcher has {of_all}")
        else:
            check(any(f"--ranks=$(({ranks_of_node} * LWS_GROUP_SIZE))" in command for command in commands), where, f"no leader starts {ranks_of_node} ranks a pod")
            slots = {int(number) for command in commands for number in re.findall(r"slots=(\d+)", command)}
            check(slots == {ranks_of_node}, where, f"hosts have {slots} slots, not {ranks_of_node}")
    for failure in failures:
        print(f"FAILED: {failure}")
    if failures:
        sys.exit(1)
    print(f"passed: {len(resources)} objects, by the schemas of Kubernetes {VERSION}")


if __name__ == "__main__":
    main()
