//! Volumes of pods, and claims of persistent ones.

use super::meta::{LABEL_SELECTOR, LOCAL_OBJECT_REFERENCE, OBJECT_META, TYPED_LOCAL_OBJECT_REFERENCE};
use crate::protobuf::message::Type::{Bool, Int, Message, Quantity, String};
use crate::protobuf::message::{Table, inline, keep, list, map, omit};

pub(super) static VOLUME: Table = &[keep(1, "name", String), inline(2, &VOLUME_SOURCE)];

pub(super) static VOLUME_SOURCE: Table = &[
    keep(1, "hostPath", Message(&HOST_PATH_VOLUME_SOURCE)),
    keep(2, "emptyDir", Message(&EMPTY_DIR_VOLUME_SOURCE)),
    keep(3, "gcePersistentDisk", Message(&GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
    keep(4, "awsElasticBlockStore", Message(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
    keep(5, "gitRepo", Message(&GIT_REPO_VOLUME_SOURCE)),
    keep(6, "secret", Message(&SECRET_VOLUME_SOURCE)),
    keep(7, "nfs", Message(&NFS_VOLUME_SOURCE)),
    keep(8, "iscsi", Message(&ISCSI_VOLUME_SOURCE)),
    keep(9, "glusterfs", Message(&GLUSTERFS_VOLUME_SOURCE)),
    keep(10, "persistentVolumeClaim", Message(&PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE)),
    keep(11, "rbd", Message(&RBD_VOLUME_SOURCE)),
    keep(12, "flexVolume", Message(&FLEX_VOLUME_SOURCE)),
    keep(13, "cinder", Message(&CINDER_VOLUME_SOURCE)),
    keep(14, "cephfs", Message(&CEPH_FS_VOLUME_SOURCE)),
    keep(15, "flocker", Message(&FLOCKER_VOLUME_SOURCE)),
    keep(16, "downwardAPI", Message(&DOWNWARD_API_VOLUME_SOURCE)),
    keep(17, "fc", Message(&FC_VOLUME_SOURCE)),
    keep(18, "azureFile", Message(&AZURE_FILE_VOLUME_SOURCE)),
    keep(19, "configMap", Message(&CONFIG_MAP_VOLUME_SOURCE)),
    keep(20, "vsphereVolume", Message(&VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE)),
    keep(21, "quobyte", Message(&QUOBYTE_VOLUME_SOURCE)),
    keep(22, "azureDisk", Message(&AZURE_DISK_VOLUME_SOURCE)),
    keep(23, "photonPersistentDisk", Message(&PHOTON_PERSISTENT_DISK_VOLUME_SOURCE)),
    keep(24, "portworxVolume", Message(&PORTWORX_VOLUME_SOURCE)),
    keep(25, "scaleIO", Message(&SCALE_IO_VOLUME_SOURCE)),
    keep(26, "projected", Message(&PROJECTED_VOLUME_SOURCE)),
    keep(27, "storageos", Message(&STORAGE_OS_VOLUME_SOURCE)),
    keep(28, "csi", Message(&CSI_VOLUME_SOURCE)),
    keep(29, "ephemeral", Message(&EPHEMERAL_VOLUME_SOURCE)),
    keep(30, "image", Message(&IMAGE_VOLUME_SOURCE)),
];

pub(super) static IMAGE_VOLUME_SOURCE: Table = &[omit(1, "reference", String), omit(2, "pullPolicy", String)];

pub(super) static EPHEMERAL_VOLUME_SOURCE: Table =
    &[keep(1, "volumeClaimTemplate", Message(&PERSISTENT_VOLUME_CLAIM_TEMPLATE))];

pub(super) static PERSISTENT_VOLUME_CLAIM_TEMPLATE: Table =
    &[omit(1, "metadata", Message(&OBJECT_META)), keep(2, "spec", Message(&PERSISTENT_VOLUME_CLAIM_SPEC))];

pub(super) static PERSISTENT_VOLUME_CLAIM_SPEC: Table = &[
    list(1, "accessModes", String),
    omit(2, "resources", Message(&VOLUME_RESOURCE_REQUIREMENTS)),
    omit(3, "volumeName", String),
    keep(4, "selector", Message(&LABEL_SELECTOR)),
    keep(5, "storageClassName", String),
    keep(6, "volumeMode", String),
    keep(7, "dataSource", Message(&TYPED_LOCAL_OBJECT_REFERENCE)),
    keep(8, "dataSourceRef", Message(&TYPED_OBJECT_REFERENCE)),
    keep(9, "volumeAttributesClassName", String),
];

pub(super) static TYPED_OBJECT_REFERENCE: Table =
    &[keep(1, "apiGroup", String), keep(2, "kind", String), keep(3, "name", String), keep(4, "namespace", String)];

pub(super) static VOLUME_RESOURCE_REQUIREMENTS: Table = &[map(1, "limits", Quantity), map(2, "requests", Quantity)];

pub(super) static CSI_VOLUME_SOURCE: Table = &[
    keep(1, "driver", String),
    keep(2, "readOnly", Bool),
    keep(3, "fsType", String),
    map(4, "volumeAttributes", String),
    keep(5, "nodePublishSecretRef", Message(&LOCAL_OBJECT_REFERENCE)),
];

pub(super) static STORAGE_OS_VOLUME_SOURCE: Table = &[
    omit(1, "volumeName", String),
    omit(2, "volumeNamespace", String),
    omit(3, "fsType", String),
    omit(4, "readOnly", Bool),
    keep(5, "secretRef", Message(&LOCAL_OBJECT_REFERENCE)),
];

pub(super) static SCALE_IO_VOLUME_SOURCE: Table = &[
    keep(1, "gateway", String),
    keep(2, "system", String),
    keep(3, "secretRef", Message(&LOCAL_OBJECT_REFERENCE)),
    omit(4, "sslEnabled", Bool),
    omit(5, "protectionDomain", String),
    omit(6, "storagePool", String),
    omit(7, "storageMode", String),
    omit(8, "volumeName", String),
    omit(9, "fsType", String),
    omit(10, "readOnly", Bool),
];

pub(super) static PORTWORX_VOLUME_SOURCE: Table =
    &[keep(1, "volumeID", String), omit(2, "fsType", String), omit(3, "readOnly", Bool)];

pub(super) static PROJECTED_VOLUME_SOURCE: Table =
    &[list(1, "sources", Message(&VOLUME_PROJECTION)), keep(2, "defaultMode", Int)];

pub(super) static VOLUME_PROJECTION: Table = &[
    keep(1, "secret", Message(&SECRET_PROJECTION)),
    keep(2, "downwardAPI", Message(&DOWNWARD_API_PROJECTION)),
    keep(3, "configMap", Message(&CONFIG_MAP_PROJECTION)),
    keep(4, "serviceAccountToken", Message(&SERVICE_ACCOUNT_TOKEN_PROJECTION)),
    keep(5, "clusterTrustBundle", Message(&CLUSTER_TRUST_BUNDLE_PROJECTION)),
    keep(6, "podCertificate", Message(&POD_CERTIFICATE_PROJECTION)),
];

pub(super) static POD_CERTIFICATE_PROJECTION: Table = &[
    omit(1, "signerName", String),
    omit(2, "keyType", String),
    keep(3, "maxExpirationSeconds", Int),
    omit(4, "credentialBundlePath", String),
    omit(5, "keyPath", String),
    omit(6, "certificateChainPath", String),
];

pub(super) static CLUSTER_TRUST_BUNDLE_PROJECTION: Table = &[
    keep(1, "name", String),
    keep(2, "signerName", String),
    keep(3, "labelSelector", Message(&LABEL_SELECTOR)),
    keep(4, "path", String),
    keep(5, "optional", Bool),
];

pub(super) static SERVICE_ACCOUNT_TOKEN_PROJECTION: Table =
    &[omit(1, "audience", String), keep(2, "expirationSeconds", Int), keep(3, "path", String)];

pub(super) static CONFIG_MAP_PROJECTION: Table =
    &[inline(1, &LOCAL_OBJECT_REFERENCE), list(2, "items", Message(&KEY_TO_PATH)), keep(4, "optional", Bool)];

pub(super) static DOWNWARD_API_PROJECTION: Table = &[list(1, "items", Message(&DOWNWARD_API_VOLUME_FILE))];

pub(super) static SECRET_PROJECTION: Table =
    &[inline(1, &LOCAL_OBJECT_REFERENCE), list(2, "items", Message(&KEY_TO_PATH)), keep(4, "optional", Bool)];

pub(super) static PHOTON_PERSISTENT_DISK_VOLUME_SOURCE: Table = &[keep(1, "pdID", String), omit(2, "fsType", String)];

pub(super) static AZURE_DISK_VOLUME_SOURCE: Table = &[
    keep(1, "diskName", String),
    keep(2, "diskURI", String),
    keep(3, "cachingMode", String),
    keep(4, "fsType", String),
    keep(5, "readOnly", Bool),
    keep(6, "kind", String),
];

pub(super) static QUOBYTE_VOLUME_SOURCE: Table = &[
    keep(1, "registry", String),
    keep(2, "volume", String),
    omit(3, "readOnly", Bool),
    omit(4, "user", String),
    omit(5, "group", String),
    omit(6, "tenant", String),
];

pub(super) static VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE: Table = &[
    keep(1, "volumePath", String),
    omit(2, "fsType", String),
    omit(3, "storagePolicyName", String),
    omit(4, "storagePolicyID", String),
];

pub(super) static CONFIG_MAP_VOLUME_SOURCE: Table = &[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    list(2, "items", Message(&KEY_TO_PATH)),
    keep(3, "defaultMode", Int),
    keep(4, "optional", Bool),
];

pub(super) static AZURE_FILE_VOLUME_SOURCE: Table =
    &[keep(1, "secretName", String), keep(2, "shareName", String), omit(3, "readOnly", Bool)];

pub(super) static FC_VOLUME_SOURCE: Table = &[
    list(1, "targetWWNs", String),
    keep(2, "lun", Int),
    omit(3, "fsType", String),
    omit(4, "readOnly", Bool),
    list(5, "wwids", String),
];

pub(super) static DOWNWARD_API_VOLUME_SOURCE: Table =
    &[list(1, "items", Message(&DOWNWARD_API_VOLUME_FILE)), keep(2, "defaultMode", Int)];

pub(super) static DOWNWARD_API_VOLUME_FILE: Table = &[
    keep(1, "path", String),
    keep(2, "fieldRef", Message(&OBJECT_FIELD_SELECTOR)),
    keep(3, "resourceFieldRef", Message(&RESOURCE_FIELD_SELECTOR)),
    keep(4, "mode", Int),
];

pub(super) static RESOURCE_FIELD_SELECTOR: Table =
    &[omit(1, "containerName", String), keep(2, "resource", String), omit(3, "divisor", Quantity)];

pub(super) static OBJECT_FIELD_SELECTOR: Table = &[omit(1, "apiVersion", String), keep(2, "fieldPath", String)];

pub(super) static FLOCKER_VOLUME_SOURCE: Table = &[omit(1, "datasetName", String), omit(2, "datasetUUID", String)];

pub(super) static CEPH_FS_VOLUME_SOURCE: Table = &[
    list(1, "monitors", String),
    omit(2, "path", String),
    omit(3, "user", String),
    omit(4, "secretFile", String),
    keep(5, "secretRef", Message(&LOCAL_OBJECT_REFERENCE)),
    omit(6, "readOnly", Bool),
];

pub(super) static CINDER_VOLUME_SOURCE: Table = &[
    keep(1, "volumeID", String),
    omit(2, "fsType", String),
    omit(3, "readOnly", Bool),
    keep(4, "secretRef", Message(&LOCAL_OBJECT_REFERENCE)),
];

pub(super) static FLEX_VOLUME_SOURCE: Table = &[
    keep(1, "driver", String),
    omit(2, "fsType", String),
    keep(3, "secretRef", Message(&LOCAL_OBJECT_REFERENCE)),
    omit(4, "readOnly", Bool),
    map(5, "options", String),
];

pub(super) static RBD_VOLUME_SOURCE: Table = &[
    list(1, "monitors", String),
    keep(2, "image", String),
    omit(3, "fsType", String),
    omit(4, "pool", String),
    omit(5, "user", String),
    omit(6, "keyring", String),
    keep(7, "secretRef", Message(&LOCAL_OBJECT_REFERENCE)),
    omit(8, "readOnly", Bool),
];

pub(super) static PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Table =
    &[keep(1, "claimName", String), omit(2, "readOnly", Bool)];

pub(super) static GLUSTERFS_VOLUME_SOURCE: Table =
    &[keep(1, "endpoints", String), keep(2, "path", String), omit(3, "readOnly", Bool)];

pub(super) static ISCSI_VOLUME_SOURCE: Table = &[
    keep(1, "targetPortal", String),
    keep(2, "iqn", String),
    keep(3, "lun", Int),
    omit(4, "iscsiInterface", String),
    omit(5, "fsType", String),
    omit(6, "readOnly", Bool),
    list(7, "portals", String),
    omit(8, "chapAuthDiscovery", Bool),
    keep(10, "secretRef", Message(&LOCAL_OBJECT_REFERENCE)),
    omit(11, "chapAuthSession", Bool),
    keep(12, "initiatorName", String),
];

pub(super) static NFS_VOLUME_SOURCE: Table =
    &[keep(1, "server", String), keep(2, "path", String), omit(3, "readOnly", Bool)];

pub(super) static SECRET_VOLUME_SOURCE: Table = &[
    omit(1, "secretName", String),
    list(2, "items", Message(&KEY_TO_PATH)),
    keep(3, "defaultMode", Int),
    keep(4, "optional", Bool),
];

pub(super) static KEY_TO_PATH: Table = &[keep(1, "key", String), keep(2, "path", String), keep(3, "mode", Int)];

pub(super) static GIT_REPO_VOLUME_SOURCE: Table =
    &[keep(1, "repository", String), omit(2, "revision", String), omit(3, "directory", String)];

pub(super) static AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: Table =
    &[keep(1, "volumeID", String), omit(2, "fsType", String), omit(3, "partition", Int), omit(4, "readOnly", Bool)];

pub(super) static GCE_PERSISTENT_DISK_VOLUME_SOURCE: Table =
    &[keep(1, "pdName", String), omit(2, "fsType", String), omit(3, "partition", Int), omit(4, "readOnly", Bool)];

pub(super) static EMPTY_DIR_VOLUME_SOURCE: Table = &[omit(1, "medium", String), keep(2, "sizeLimit", Quantity)];

pub(super) static HOST_PATH_VOLUME_SOURCE: Table = &[keep(1, "path", String), keep(2, "type", String)];
